//! The pages of the database file, and what they hold.

use super::CrashMachine;
use crate::disk::PAGE_BYTES;

/// What a page is to the table or index that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// It holds rows, or the beginnings of rows that do not fit.
    Leaf,
    /// It holds a part of one large row.
    Overflow,
}

/// A page of the database file.
#[derive(Debug, Clone)]
pub struct StoredPage {
    /// The table or index.
    pub table: String,
    /// Its place in the file; the first page has number 1.
    pub number: u64,
    /// What it is.
    pub kind: PageKind,
    bytes: Vec<u8>,
}

impl StoredPage {
    /// Whether a text is in it.
    pub fn contains(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

impl CrashMachine {
    /// The pages with rows in the order of the tables, and of the rows in each. The log must be empty.
    pub fn pages(&self) -> Vec<StoredPage> {
        let image = self.disk.image();
        let file = &image[self.database.to_str().expect("the path is text")];
        let found: Vec<(String, u64, String)> = self.read_copy(|conn| {
            let pages =
                "SELECT name, pageno, pagetype FROM dbstat WHERE pagetype <> 'internal' ORDER BY name, path";
            let mut select = conn.prepare(pages).unwrap();
            let pages = select
                .query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?)));
            pages.unwrap().collect::<rusqlite::Result<_>>().unwrap()
        });
        let page_bytes = usize::try_from(PAGE_BYTES).unwrap();
        let page = |(table, number, kind): (String, u64, String)| {
            let begin = usize::try_from(number - 1).unwrap() * page_bytes;
            let kind = if kind == "overflow" { PageKind::Overflow } else { PageKind::Leaf };
            StoredPage { table, number, kind, bytes: file[begin..begin + page_bytes].to_vec() }
        };
        found.into_iter().map(page).collect()
    }
}
