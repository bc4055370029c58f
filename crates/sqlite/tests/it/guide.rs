//! The guide for provider authors names every method, and its tables are a part of the schema of this crate. (Its Rust
//! blocks are documentation tests of this crate.)

use std::collections::BTreeSet;

use rusqlite::Connection;

const GUIDE: &str = include_str!("../../../../docs/writing-a-provider.md");
const TRAITS: [&str; 3] = [
    include_str!("../../../provider/src/provider.rs"),
    include_str!("../../../provider/src/management.rs"),
    include_str!("../../../provider/src/store/mod.rs"),
];
const SCHEMA: &str = include_str!("../../migrations/0001_initial.sql");

fn columns(schema: &str) -> BTreeSet<(String, String, String)> {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(schema).unwrap();
    let mut select = conn
        .prepare(
            "SELECT t.name, c.name, c.type FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c \
             WHERE t.type = 'table'",
        )
        .unwrap();
    select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn every_table_and_column_of_the_guide_is_in_the_schema() {
    let blocks: Vec<&str> =
        GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    let shown = columns(&blocks.join("\n"));
    let real = columns(SCHEMA);
    let invented: Vec<_> = shown.difference(&real).collect();
    assert!(invented.is_empty(), "{invented:?}");
}

#[test]
fn every_method_of_the_traits_is_in_the_guide() {
    let mut methods = 0;
    for source in TRAITS {
        let traits = source.split("pub trait ").nth(1).unwrap();
        let traits = traits.split("\n}\n").next().unwrap();
        for line in
            traits.lines().filter(|line| line.starts_with("    fn ") || line.starts_with("    async fn "))
        {
            let method = line.split("fn ").nth(1).unwrap().split('(').next().unwrap();
            assert!(GUIDE.contains(&format!("`{method}`")), "the guide does not name {method}");
            methods += 1;
        }
    }
    assert!(methods > 60, "only {methods} methods were found");
}
