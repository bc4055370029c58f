//! Names and constants that programs rely on.

use everturn_core::{
    INITIAL_EVENT_ID, INITIAL_EXECUTION_ID, OrchestrationStatus, SUB_ORCH_AUTO_PREFIX, SYSCALL_GET_KV_VALUE,
    SYSCALL_NEW_GUID, SYSCALL_PREFIX, SYSCALL_UTC_NOW_MS, SemverRange, current_build_version,
};
use semver::Version;

#[test]
fn system_activities_have_a_reserved_prefix() {
    assert_eq!(SYSCALL_PREFIX, "__everturn_syscall:");
    assert_eq!(SYSCALL_NEW_GUID, format!("{SYSCALL_PREFIX}new_guid"));
    assert_eq!(SYSCALL_UTC_NOW_MS, format!("{SYSCALL_PREFIX}utc_now_ms"));
    assert_eq!(SYSCALL_GET_KV_VALUE, format!("{SYSCALL_PREFIX}get_kv_value"));
}

#[test]
fn first_ids_are_one() {
    assert_eq!((INITIAL_EXECUTION_ID, INITIAL_EVENT_ID, SUB_ORCH_AUTO_PREFIX), (1, 1, "sub::"));
}

#[test]
fn build_version_is_the_workspaces() {
    assert_eq!(current_build_version().to_string(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn version_range_includes_both_ends() {
    let range = SemverRange::new(Version::new(1, 0, 0), Version::new(2, 0, 0));
    assert!(range.contains(&Version::new(1, 0, 0)) && range.contains(&Version::new(2, 0, 0)));
    assert!(!range.contains(&Version::new(0, 9, 9)) && !range.contains(&Version::new(2, 0, 1)));
    let build = SemverRange::default_for_current_build();
    assert_eq!((build.min, build.max), (Version::new(0, 0, 0), current_build_version()));
}

#[test]
fn status_knows_whether_it_is_final() {
    let running = OrchestrationStatus::Running { custom_status: None, custom_status_version: 3 };
    assert!(!running.is_terminal());
    assert_eq!(running.custom_status_version(), 3);
    let completed = OrchestrationStatus::Completed {
        output: String::new(),
        custom_status: None,
        custom_status_version: 4,
    };
    assert!(completed.is_terminal());
    assert_eq!(OrchestrationStatus::NotFound.custom_status_version(), 0);
}
