//! Which mutants are tried.

/// The name of a mutant as `cargo-mutants` lists it: `crates/a/src/b.rs:12:5: replace f -> bool with true`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MutantName(pub(crate) String);

impl MutantName {
    /// The file that it changes.
    pub(crate) fn file(&self) -> &str {
        self.0.split(':').next().unwrap_or(&self.0)
    }

    /// The regular expression that matches this name and no other.
    pub(crate) fn pattern(&self) -> String {
        let mut pattern = String::from("^");
        for letter in self.0.chars() {
            if r"\.+*?()|[]{}^$#&-~".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern.push('$');
        pattern
    }
}

/// The name without line and column, which change with every edit above.
pub(crate) fn without_position(name: &str) -> String {
    let Some((place, change)) = name.split_once(": ") else { return name.to_owned() };
    let file = place.split(':').next().unwrap_or(place);
    format!("{file}: {change}")
}

/// All mutants in an order that the seed alone decides, whatever the order of the list.
pub(crate) fn shuffled(mut names: Vec<MutantName>, seed: u64) -> Vec<MutantName> {
    names.sort_by_cached_key(|name| (hash(seed, &name.0), name.clone()));
    names
}

/// FNV-1a, then the finalizer of SplitMix64: names that differ in one digit get unrelated places.
fn hash(seed: u64, text: &str) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum ^ (sum >> 31)
}

#[cfg(test)]
mod tests {
    use super::{MutantName, shuffled, without_position};

    fn names() -> Vec<MutantName> {
        (1..=100)
            .map(|line| MutantName(format!("crates/a/src/b.rs:{line}:5: replace + with - in f")))
            .collect()
    }

    #[test]
    fn the_seed_decides_the_sample() {
        let mut reversed = names();
        reversed.reverse();
        assert_eq!(shuffled(names(), 7), shuffled(reversed, 7), "the order of the list has no influence");
        let (one, other) = (shuffled(names(), 7), shuffled(names(), 8));
        let in_both =
            one.iter().take(50).filter(|name| other.iter().take(50).any(|same| same == *name)).count();
        assert!((10..40).contains(&in_both), "{in_both} of 50 mutants are in the samples of both seeds");
    }

    #[test]
    fn a_pattern_names_one_mutant() {
        let name = MutantName("a.rs:1:2: replace f -> Vec<(u8, &str)> with vec![]".to_owned());
        assert_eq!(name.pattern(), r"^a\.rs:1:2: replace f \-> Vec<\(u8, \&str\)> with vec!\[\]$");
    }

    #[test]
    fn a_mutant_is_known_again_when_its_line_has_moved() {
        assert_eq!(
            without_position("a/b.rs:12:5: replace f -> R with x: y"),
            "a/b.rs: replace f -> R with x: y"
        );
    }
}
