//! The JSON of `SystemStats`.

use everturn_core::SystemStats;

#[test]
fn stats_are_written_under_their_names() {
    let stats = SystemStats {
        history_event_count: 1,
        history_size_bytes: 2,
        queue_pending_count: 3,
        kv_user_key_count: 4,
        kv_total_value_bytes: 5,
    };
    let line = r#"{"history_event_count":1,"history_size_bytes":2,"queue_pending_count":3,"kv_user_key_count":4,"kv_total_value_bytes":5}"#;
    assert_eq!(serde_json::to_string(&stats).unwrap(), line);
    assert_eq!(serde_json::from_str::<SystemStats>(line).unwrap(), stats);
}
