//! How typed values are encoded and decoded.

use std::collections::{BTreeMap, HashMap};

use everturn_core::turn::TurnOutcome;
use everturn_core::{AppErrorKind, ErrorDetails, RetryPolicy, codec};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::harness::{
    Harness, activity_completed, activity_failed, outcome_of, queue_message, signal, summarize,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    lines: Vec<String>,
}

/// JSON has no such keys.
fn unserialisable() -> HashMap<(u8, u8), u8> {
    HashMap::from([((1, 2), 3)])
}

fn panicked(outcome: &TurnOutcome) -> bool {
    matches!(
        outcome,
        TurnOutcome::Failed { details: ErrorDetails::Application { kind: AppErrorKind::Panicked, .. } }
    )
}

#[test]
fn strings_are_encoded_without_quotes() {
    assert_eq!(codec::encode(&"abc").unwrap(), "abc");
    assert_eq!(codec::encode(&"a \"b\"".to_owned()).unwrap(), "a \"b\"");
    assert_eq!(codec::encode(&'x').unwrap(), "x");
}

#[test]
fn other_values_are_encoded_as_compact_json() {
    assert_eq!(codec::encode(&7).unwrap(), "7");
    assert_eq!(codec::encode(&()).unwrap(), "null");
    assert_eq!(codec::encode(&Some("a")).unwrap(), "a");
    assert_eq!(codec::encode(&vec!["a", "b"]).unwrap(), r#"["a","b"]"#);
    let order = Order { id: 7, lines: vec!["x y".into()] };
    assert_eq!(codec::encode(&order).unwrap(), r#"{"id":7,"lines":["x y"]}"#);
}

#[test]
fn text_is_read_as_json_first() {
    assert_eq!(codec::decode::<u32>("7").unwrap(), 7);
    assert_eq!(codec::decode::<Vec<u8>>("[1, 2]").unwrap(), [1, 2]);
    assert_eq!(codec::decode::<Option<u8>>("null").unwrap(), None);
}

#[test]
fn quoted_text_loses_its_quotes_in_a_string() {
    assert_eq!(codec::decode::<String>("\"abc\"").unwrap(), "abc");
}

#[test]
fn text_that_is_no_json_is_a_string() {
    assert_eq!(codec::decode::<String>("abc def").unwrap(), "abc def");
    assert_eq!(codec::decode::<String>("").unwrap(), "");
    assert_eq!(codec::decode::<String>("{broken").unwrap(), "{broken");
}

#[test]
fn number_text_is_a_string_only_where_no_number_fits() {
    assert_eq!(codec::decode::<String>("7").unwrap(), "7");
    assert_eq!(codec::decode::<Value>("7").unwrap(), Value::from(7));
}

#[test]
fn decoding_error_says_what_the_text_is() {
    let second = serde_json::from_value::<u32>(Value::String("abc".into())).unwrap_err();
    assert_eq!(codec::decode::<u32>("abc").unwrap_err(), second.to_string());
    let number = codec::decode::<Vec<u8>>("7").unwrap_err();
    assert!(number.starts_with("invalid type: integer `7`, expected a sequence"), "{number}");
    let field = codec::decode::<Order>(r#"{"id":7}"#).unwrap_err();
    assert!(field.starts_with("missing field `lines`"), "{field}");
}

#[test]
fn encoding_error_is_a_text() {
    assert!(codec::encode(&unserialisable()).is_err());
}

proptest! {
    #[test]
    fn structures_come_back_as_they_went(id: u32, lines: Vec<String>) {
        let order = Order { id, lines };
        prop_assert_eq!(codec::decode::<Order>(&codec::encode(&order).unwrap()).unwrap(), order);
    }

    #[test]
    fn maps_come_back_as_they_went(map: BTreeMap<String, i64>) {
        prop_assert_eq!(codec::decode::<BTreeMap<String, i64>>(&codec::encode(&map).unwrap()).unwrap(), map);
    }

    #[test]
    fn reading_never_panics(text: String) {
        let _: Result<Order, String> = codec::decode(&text);
        let read: Result<String, String> = codec::decode(&text);
        prop_assert!(read.is_ok());
    }
}

#[test]
fn typed_activity_encodes_its_input_and_decodes_its_result() {
    let mut harness = Harness::new(|ctx, _| async move {
        let order = Order { id: 1, lines: vec![] };
        let reply: Order = ctx.schedule_activity_typed("Pack", &order).await?;
        Ok(reply.id.to_string())
    });
    let turn = harness.turn([]);
    assert_eq!(summarize(&turn.history_delta), ["1 started", r#"2 activity Pack {"id":1,"lines":[]}"#]);
    let turn = harness.turn([activity_completed(2, r#"{"id":9,"lines":[]}"#)]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "9".into() });
}

#[test]
fn typed_activity_that_cannot_be_decoded_yields_an_error() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.schedule_activity_typed::<_, u32>("A", &"in").await.map(|n| n.to_string())
    });
    harness.turn([]);
    let turn = harness.turn([activity_completed(2, "abc")]);
    let TurnOutcome::Failed { details } = turn.outcome else { panic!("{:?}", turn.outcome) };
    let expected = format!("decoding the result of activity A: {}", codec::decode::<u32>("abc").unwrap_err());
    assert_eq!(details.display_message(), expected);
}

#[test]
fn typed_calls_panic_on_input_that_cannot_be_encoded() {
    assert!(panicked(&outcome_of(|ctx, _| async move {
        ctx.schedule_activity_typed::<_, String>("A", &unserialisable()).await
    })));
    assert!(panicked(&outcome_of(|ctx, _| async move {
        ctx.schedule_activity_on_session_typed::<_, String>("A", &unserialisable(), "s").await
    })));
    assert!(panicked(&outcome_of(|ctx, _| async move {
        ctx.schedule_activity_with_retry_typed::<_, String>("A", &unserialisable(), RetryPolicy::new(1)).await
    })));
    assert!(panicked(&outcome_of(|ctx, _| async move {
        ctx.schedule_sub_orchestration_typed::<_, String>("C", &unserialisable()).await
    })));
    assert!(panicked(&outcome_of(|ctx, _| async move {
        ctx.schedule_orchestration_typed("C", "other", &unserialisable());
        Ok(String::new())
    })));
    assert!(panicked(&outcome_of(
        |ctx, _| async move { ctx.continue_as_new_typed(&unserialisable()).await }
    )));
}

#[test]
fn typed_retry_decodes_the_last_result() {
    let mut harness = Harness::new(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_backoff(everturn_core::BackoffStrategy::None);
        let n: u32 = ctx.schedule_activity_with_retry_typed("A", &1, policy).await?;
        Ok((n + 1).to_string())
    });
    harness.turn([]);
    harness.turn([activity_failed(2, "once")]);
    assert_eq!(
        harness.turn([activity_completed(4, "41")]).outcome,
        TurnOutcome::Completed { output: "42".into() }
    );
}

#[test]
fn typed_retry_that_cannot_be_decoded_yields_an_error() {
    let mut harness = Harness::new(|ctx, _| async move {
        let n: Result<u32, String> =
            ctx.schedule_activity_with_retry_typed("A", &1, RetryPolicy::new(3)).await;
        Ok(format!("{}", n.is_err()))
    });
    harness.turn([]);
    assert_eq!(
        harness.turn([activity_completed(2, "x")]).outcome,
        TurnOutcome::Completed { output: "true".into() }
    );
}

#[test]
fn typed_wait_decodes_and_panics_on_what_does_not_fit() {
    let code = |ctx: everturn_core::OrchestrationContext, _| async move {
        let n: u32 = ctx.schedule_wait_typed("go").await;
        Ok(n.to_string())
    };
    let mut harness = Harness::new(code);
    harness.turn([]);
    assert_eq!(harness.turn([signal("go", "5")]).outcome, TurnOutcome::Completed { output: "5".into() });
    let mut harness = Harness::new(code);
    harness.turn([]);
    assert!(panicked(&harness.turn([signal("go", "five")]).outcome));
}

#[test]
fn typed_dequeue_decodes_and_panics_on_what_does_not_fit() {
    let code = |ctx: everturn_core::OrchestrationContext, _| async move {
        let n: u32 = ctx.dequeue_event_typed("q").await;
        Ok(n.to_string())
    };
    let mut harness = Harness::new(code);
    assert_eq!(
        harness.turn([queue_message("q", "5")]).outcome,
        TurnOutcome::Completed { output: "5".into() }
    );
    assert!(panicked(&Harness::new(code).turn([queue_message("q", "five")]).outcome));
}

#[test]
fn typed_kv_uses_plain_json_so_that_strings_are_quoted() {
    let mut harness = Harness::new(|ctx, _| async move {
        ctx.set_kv_value_typed("s", &"abc");
        ctx.set_kv_value_typed("n", &7);
        let back: Option<String> = ctx.get_kv_value_typed("s")?;
        Ok(format!("{} {back:?}", ctx.get_kv_value("s").unwrap_or_default()))
    });
    let turn = harness.turn([]);
    assert_eq!(turn.outcome, TurnOutcome::Completed { output: "\"abc\" Some(\"abc\")".into() });
    assert_eq!(summarize(&turn.history_delta)[1..3], ["2 set s=\"abc\"", "3 set n=7"]);
}

/// Passes with `serde_json/preserve_order` on or off.
#[test]
fn keys_are_in_ascending_order_whatever_the_order_of_declaration() {
    #[derive(Serialize)]
    struct Declared {
        z: u8,
        a: Inner,
    }
    #[derive(Serialize)]
    struct Inner {
        y: Vec<BTreeMap<&'static str, u8>>,
        b: u8,
    }
    let value = Declared { z: 1, a: Inner { y: vec![BTreeMap::from([("q", 1), ("p", 2)])], b: 3 } };
    assert_eq!(codec::encode(&value).unwrap(), r#"{"a":{"b":3,"y":[{"p":2,"q":1}]},"z":1}"#);
    let many: HashMap<String, u8> = (0..50).map(|n| (format!("k{n:02}"), n)).collect();
    let sorted: BTreeMap<String, u8> = many.clone().into_iter().collect();
    assert_eq!(codec::encode(&many).unwrap(), serde_json::to_string(&sorted).unwrap());
}
