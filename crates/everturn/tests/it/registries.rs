//! Registration, version policies, merging, and the errors of both.

use everturn::runtime::VersionPolicy;
use everturn::runtime::registry::{ActivityRegistry, ActivityRegistryBuilder};
use everturn::{ActivityContext, OrchestrationContext, OrchestrationRegistry, OrchestrationRegistryBuilder};
use semver::Version;

async fn orchestration(_ctx: OrchestrationContext, input: String) -> Result<String, String> {
    Ok(input)
}

async fn activity(_ctx: ActivityContext, input: String) -> Result<String, String> {
    Ok(input)
}

fn three_versions() -> OrchestrationRegistryBuilder {
    OrchestrationRegistry::builder()
        .register("order", orchestration)
        .register_versioned("order", "1.9.0", orchestration)
        .register_versioned("order", "1.10.0", orchestration)
}

fn error_of<H: ?Sized>(result: Result<everturn::runtime::registry::Registry<H>, String>) -> String {
    match result {
        Ok(_) => panic!("the registry was built"),
        Err(error) => error,
    }
}

#[test]
fn registration_without_a_version_is_version_1() {
    let orchestrations = OrchestrationRegistry::builder().register("order", orchestration).build();
    let activities = ActivityRegistry::builder().register("charge", activity).build();
    assert_eq!(orchestrations.list_versions("order"), [Version::new(1, 0, 0)]);
    assert_eq!(activities.list_versions("charge"), [Version::new(1, 0, 0)]);
}

#[test]
fn latest_is_the_highest_semantic_version() {
    let registry = three_versions().build();
    let (version, handler) = registry.resolve_handler("order").unwrap();
    assert_eq!(version, Version::new(1, 10, 0));
    let exact = registry.resolve_handler_exact("order", &version).unwrap();
    assert!(std::sync::Arc::ptr_eq(&handler, &exact));
    let versions: Vec<_> = registry.list_versions("order").iter().map(ToString::to_string).collect();
    assert_eq!(versions, ["1.0.0", "1.9.0", "1.10.0"]);
}

#[test]
fn a_policy_is_live_and_shared_by_clones() {
    let registry = three_versions().set_policy("order", VersionPolicy::Exact(Version::new(1, 9, 0))).build();
    assert_eq!(registry.resolve_version("order"), Some(Version::new(1, 9, 0)));
    registry.clone().set_version_policy("order", VersionPolicy::Exact(Version::new(1, 0, 0)));
    assert_eq!(registry.resolve_version("order"), Some(Version::new(1, 0, 0)));
    registry.set_version_policy("order", VersionPolicy::Latest);
    assert_eq!(registry.resolve_version("order"), Some(Version::new(1, 10, 0)));
}

#[test]
fn a_lookup_miss_is_none() {
    let registry = three_versions().build();
    assert!(registry.resolve_handler("parcel").is_none());
    assert!(registry.resolve_version("parcel").is_none());
    assert!(registry.resolve_handler_exact("order", &Version::new(3, 0, 0)).is_none());
    registry.set_version_policy("order", VersionPolicy::Exact(Version::new(3, 0, 0)));
    assert!(registry.resolve_handler("order").is_none());
    assert!(registry.list_versions("parcel").is_empty());
}

#[test]
fn names_are_counted_not_versions() {
    let registry = three_versions().register("parcel", orchestration).build();
    assert_eq!(registry.count(), 2);
    assert_eq!(registry.list_names(), ["order", "parcel"]);
    assert!(registry.has("parcel") && !registry.has("letter"));
    assert_eq!(OrchestrationRegistry::default().count(), 0);
}

#[test]
fn every_duplicate_is_reported_however_it_was_registered() {
    let typed_activity = |_ctx: ActivityContext, n: u32| async move { Ok(n) };
    let typed = |_ctx: OrchestrationContext, n: u32| async move { Ok(n) };
    let activities = || ActivityRegistry::builder().register("charge", activity);
    let expected = "duplicate activity registration: charge@1.0.0";
    assert_eq!(error_of(activities().register("charge", activity).build_result()), expected);
    assert_eq!(error_of(activities().register_typed("charge", typed_activity).build_result()), expected);
    let orchestrations = || three_versions().register("parcel", orchestration);
    let twice = [
        orchestrations().register("order", orchestration),
        orchestrations().register_typed("order", typed),
        orchestrations().register_all(vec![("order", orchestration)]),
    ];
    for builder in twice {
        assert_eq!(error_of(builder.build_result()), "duplicate orchestration registration: order@1.0.0");
    }
    let latest_twice = [
        orchestrations().register_versioned("order", "1.10.0", orchestration),
        orchestrations().register_versioned_typed("order", "1.10.0", typed),
    ];
    for builder in latest_twice {
        assert_eq!(error_of(builder.build_result()), "duplicate orchestration registration: order@1.10.0");
    }
}

#[test]
#[should_panic(expected = "registrations were rejected: duplicate activity registration: charge@1.0.0; \
                duplicate activity registration: pack@1.0.0")]
fn build_panics_with_all_errors() {
    let builder = ActivityRegistry::builder().register("charge", activity).register("charge", activity);
    builder.register("pack", activity).register("pack", activity).build();
}

#[test]
fn names_that_no_client_can_send_are_refused() {
    let error = error_of(ActivityRegistry::builder().register("", activity).build_result());
    assert_eq!(error, "activity name is empty: use at least one character");
    let error = error_of(OrchestrationRegistry::builder().register("a\tb", orchestration).build_result());
    let expected = "orchestration name \"a\\tb\" contains the control character U+0009: remove or replace it";
    assert_eq!(error, expected);
    let longest = "x".repeat(1_024);
    let builder = || OrchestrationRegistry::builder().register(longest.as_str(), orchestration);
    assert!(builder().build().has(&longest));
    let error =
        error_of(builder().register_versioned(format!("{longest}x"), "1.0.0", orchestration).build_result());
    assert!(error.starts_with("orchestration name has 1025 bytes, the limit is 1024"), "{error}");
}

#[test]
fn several_errors_are_joined() {
    let builder = ActivityRegistry::builder()
        .register("charge", activity)
        .register("charge", activity)
        .register("__everturn_syscall:new_guid", activity);
    assert_eq!(
        error_of(builder.build_result()),
        "duplicate activity registration: charge@1.0.0; \
         activity name '__everturn_syscall:new_guid' uses reserved prefix '__everturn_syscall:'"
    );
}

#[test]
fn reserved_activity_names_are_refused_typed_too() {
    let builder = ActivityRegistry::builder()
        .register_typed("__everturn_syscall:x", |_ctx: ActivityContext, n: u32| async move { Ok(n) });
    assert!(error_of(builder.build_result()).contains("uses reserved prefix"));
}

#[test]
fn merging_reports_duplicates_and_leaves_policies_behind() {
    let other = three_versions()
        .register("parcel", orchestration)
        .set_policy("parcel", VersionPolicy::Exact(Version::new(9, 0, 0)))
        .build();
    let merged = OrchestrationRegistry::builder().register("order", orchestration).merge(other.clone());
    assert_eq!(error_of(merged.build_result()), "duplicate orchestration in merge: order@1.0.0");
    let merged = OrchestrationRegistry::builder().register("letter", orchestration).merge(other).build();
    assert_eq!(merged.list_versions("order").len(), 3);
    assert!(merged.resolve_handler("parcel").is_some());
}

#[test]
fn merging_activities_reports_their_kind() {
    let other = ActivityRegistry::builder().register("charge", activity).build();
    let builder = ActivityRegistryBuilder::from_registry(&other).merge(other);
    assert_eq!(error_of(builder.build_result()), "duplicate activity in merge: charge@1.0.0");
}

#[test]
fn a_builder_from_a_registry_copies_its_policies() {
    let registry = three_versions().set_policy("order", VersionPolicy::Exact(Version::new(1, 9, 0))).build();
    let copy = OrchestrationRegistry::builder_from(&registry).register("parcel", orchestration).build();
    assert_eq!(copy.resolve_version("order"), Some(Version::new(1, 9, 0)));
    registry.set_version_policy("order", VersionPolicy::Latest);
    assert_eq!(copy.resolve_version("order"), Some(Version::new(1, 9, 0)));
    assert_eq!((registry.count(), copy.count()), (1, 2));
}

#[test]
fn many_are_registered_at_once() {
    let activities = ActivityRegistry::builder().register_all(vec![("a", activity), ("b", activity)]).build();
    let orchestrations = OrchestrationRegistry::builder()
        .register_all(vec![("c", orchestration), ("d", orchestration)])
        .build();
    assert_eq!(activities.list_names(), ["a", "b"]);
    assert_eq!(orchestrations.list_names(), ["c", "d"]);
}

#[test]
fn plain_registration_may_come_after_a_later_version() {
    let registry = OrchestrationRegistry::builder()
        .register_versioned("order", "2.0.0", orchestration)
        .register("order", orchestration)
        .build_result()
        .unwrap();
    assert_eq!(registry.list_versions("order").len(), 2);
}

#[test]
#[should_panic(
    expected = "non-monotonic orchestration version for order: 1.9.0 is not later than existing latest 1.10.0"
)]
fn an_earlier_version_panics() {
    drop(three_versions().register_versioned("order", "1.9.0", orchestration));
}

#[test]
#[should_panic(expected = "is not semantic")]
fn a_version_that_is_not_semantic_panics() {
    drop(three_versions().register_versioned("order", "two", orchestration));
}
