//! Large payloads.

/// A text of this many bytes that hardly compresses: some stores compress large values.
pub fn payload(bytes: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            // Xorshift: the same text in every run.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            LETTERS.get((state >> 58) as usize).map_or('A', |&letter| char::from(letter))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_has_its_size_and_many_letters() {
        let text = payload(10_000);
        assert_eq!(text.len(), 10_000);
        for letter in "AZaz09+-".chars() {
            let count = text.matches(letter).count();
            assert!((80..300).contains(&count), "{letter}: {count}");
        }
        assert_eq!(payload(0), "");
    }
}
