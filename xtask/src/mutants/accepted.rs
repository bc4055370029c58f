//! Mutants that no test can or should notice, each with the reason.

/// The name of a mutant without line and column, and why no test notices it.
const ACCEPTED: &[(&str, &str)] = &[];

/// Why this mutant is accepted, if it is.
pub(crate) fn reason(mutant: &str) -> Option<&'static str> {
    ACCEPTED.iter().find(|(name, _)| *name == mutant).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::ACCEPTED;

    #[test]
    fn an_accepted_mutant_names_a_file_and_a_reason() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for (mutant, reason) in ACCEPTED {
            let file = mutant.split(": ").next().unwrap();
            assert!(root.join(file).is_file(), "{mutant}: the file is gone");
            assert!(reason.len() > 20, "{mutant}: {reason:?} is no reason");
        }
    }
}
