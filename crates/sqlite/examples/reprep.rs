#![allow(clippy::all, clippy::unwrap_used, clippy::print_stdout, missing_docs)]
use rusqlite::*;
fn main() {
    let c = Connection::open_in_memory().unwrap();
    c.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap(); c.execute_batch(include_str!("../migrations/0001_initial.sql")).unwrap();
    for f in std::fs::read_dir("crates/sqlite/src").unwrap() {
        let f = f.unwrap().path(); let s = std::fs::read_to_string(&f).unwrap();
        let mut rest = s.as_str();
        while let Some(i) = rest.find("const ") {
            rest = &rest[i + 6..];
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let Some(q) = rest.find('"') else { continue };
            if !rest[..q].contains("&str =") || q > 200 { continue }
            let body = &rest[q + 1..]; let Some(e) = body.find("\";") else { continue };
            let mut sql = String::new(); let mut it = body[..e].split("\\\n"); sql.push_str(it.next().unwrap()); for l in it { sql.push_str(l.trim_start()); }
            if !(sql.starts_with("SELECT") || sql.starts_with("UPDATE") || sql.starts_with("DELETE") || sql.starts_with("INSERT")) { continue }
            let Ok(mut st) = c.prepare(&sql) else { println!("ERR {name} {sql}"); continue };
            let n = st.parameter_count();
            for r in 0..4i64 { for p in 1..=n { st.raw_bind_parameter(p, r + p as i64).unwrap(); } 
                let mut rows = st.raw_query(); loop { match rows.next() { Ok(Some(_)) => {}, _ => break } } }
            let rp = st.get_status(StatementStatus::RePrepare);
            if rp > 0 { println!("{:?} {name} reprepared {rp}: {sql}", f.file_name().unwrap()); }
        }
    }
}
