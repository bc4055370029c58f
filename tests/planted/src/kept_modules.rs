//! The test modules that the copy keeps. The others have no proof that a trial runs; without them the copy builds in less than
//! half the time.

/// The modules that one file of the copy keeps.
#[derive(Debug, Clone, Copy)]
pub struct KeptModules {
    /// The file, relative to the workspace.
    pub file: &'static str,
    /// Its modules that stay. All others leave the file.
    pub modules: &'static [&'static str],
}

/// What trials need: modules with proofs, and modules that those use. A proof that is missing in the copy is reported by
/// `r15_without_a_bug_every_proof_holds`.
pub const KEPT_MODULES: &[KeptModules] = &[
    KeptModules {
        file: "crates/core/tests/it/main.rs",
        modules: &[
            "cancellation",
            "harness",
            "messages",
            "queues",
            "random_combinations",
            "random_programs",
            "summaries",
        ],
    },
    KeptModules {
        file: "crates/everturn/tests/it/main.rs",
        modules: &[
            "cancellation_delivery",
            "fused_steps",
            "lock_renewal",
            "log_lines",
            "node_under_test",
            "outages_and_attempts",
            "parents_and_strangers",
            "session_leases",
            "stores",
            "tampering_store",
            "tokio_clock",
        ],
    },
    KeptModules {
        file: "crates/sqlite/tests/it/main.rs",
        modules: &[
            "bulk_delete",
            "clock_jumps",
            "conformance",
            "damage_sweep",
            "group_commit",
            "large_store",
            "log_growth",
            "newer_schema",
            "opening",
            "replaced_file",
            "stale_locks",
            "store",
            "totals",
            "waking",
        ],
    },
    KeptModules { file: "crates/sqlite/tests/it/conformance.rs", modules: &["in_batches"] },
];

/// The text without the declarations of all modules but these, and without their attributes.
pub(crate) fn keep(text: &str, kept: &KeptModules) -> Result<String, String> {
    let KeptModules { file, modules } = kept;
    for module in *modules {
        if !text.lines().any(|line| declared(line) == Some(module)) {
            return Err(format!(
                "{file} has no module {module}. Change the entry in tests/planted/src/kept_modules.rs"
            ));
        }
    }
    let mut left = String::new();
    let mut attributes = String::new();
    for line in text.lines() {
        if line.starts_with("#[") {
            attributes.push_str(line);
            attributes.push('\n');
            continue;
        }
        let attributes = std::mem::take(&mut attributes);
        if declared(line).is_none_or(|module| modules.contains(&module)) {
            left.push_str(&attributes);
            left.push_str(line);
            left.push('\n');
        }
    }
    Ok(left)
}

/// The module that this line declares, if its text is in another file.
fn declared(line: &str) -> Option<&str> {
    line.strip_prefix("mod ")?.strip_suffix(';')
}

#[cfg(test)]
mod tests {
    use super::{KeptModules, keep};

    const TEXT: &str =
        "#![allow(missing_docs)]\n\nmod a;\n#[cfg(unix)]\nmod b;\n#[path = \"x.rs\"]\nmod c;\nmod d {}\n";

    #[test]
    fn modules_leave_with_their_attributes() {
        let kept = KeptModules { file: "main.rs", modules: &["c"] };
        let left = "#![allow(missing_docs)]\n\n#[path = \"x.rs\"]\nmod c;\nmod d {}\n";
        assert_eq!(keep(TEXT, &kept).unwrap(), left);
    }

    #[test]
    fn a_module_that_is_gone_is_reported_with_its_file() {
        let error = keep(TEXT, &KeptModules { file: "main.rs", modules: &["e"] }).unwrap_err();
        assert!(error.contains("main.rs has no module e"), "{error}");
    }
}
