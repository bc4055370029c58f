//! The product knows nothing of planted bugs.

use std::path::Path;

use everturn_planted_bugs::BUGS;

use crate::catching::workspace;

/// Every source file below the folder, with its text.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push((path.display().to_string(), text));
        }
    }
}

#[test]
fn no_source_of_the_product_names_a_bug() {
    let mut found = Vec::new();
    for folder in workspace().join("crates").read_dir().unwrap() {
        sources(&folder.unwrap().path().join("src"), &mut found);
    }
    assert!(found.len() > 100, "only {} files were found", found.len());
    for (file, text) in &found {
        assert!(!text.contains("planted"), "{file} asks for planted bugs");
        for bug in BUGS {
            let snake = bug.name.replace('-', "_");
            let camel: String = bug
                .name
                .split('-')
                .flat_map(|word| word.chars().enumerate())
                .map(|(index, letter)| if index == 0 { letter.to_ascii_uppercase() } else { letter })
                .collect();
            let is_named = [bug.name, &snake, &camel].iter().any(|name| text.contains(*name));
            assert!(!is_named, "{file} names the bug {}", bug.name);
        }
    }
}
