//! No product has bugs in it.

use std::process::Command;

use everturn_core::{Bug, planted};
use serde_json::Value;

const FEATURE: &str = "planted-bugs";

/// What cargo knows of the packages of the workspace.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo speaks JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

#[test]
fn no_package_of_the_workspace_turns_the_feature_on() {
    let packages = packages();
    assert!(
        packages.iter().any(|package| package["features"].get(FEATURE).is_some()),
        "nobody has the feature"
    );
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for (feature, turns_on) in package["features"].as_object().unwrap() {
            let turns_on = turns_on.to_string();
            assert!(!turns_on.contains(FEATURE), "{feature} of {name} turns on {turns_on}");
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let features = dependency["features"].to_string();
            assert!(!features.contains(FEATURE), "{name} turns it on for {}", dependency["name"]);
        }
    }
}

#[test]
fn no_bug_is_planted_in_an_ordinary_build() {
    assert!(Bug::ALL.iter().all(|bug| !planted(*bug)));
}
