//! A typed value comes back as it was, or is refused.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;

use everturn_core::{EventKind, OrchestrationContext, codec};
use proptest::collection::{btree_map, hash_set, vec};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::harness::{Harness, history, signal};

/// Checks that a value comes back from the payload of its type.
#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let payload = codec::encode_typed(value).unwrap_or_else(|error| panic!("{value:?} is refused: {error}"));
    let read: T = codec::decode(&payload).unwrap_or_else(|error| panic!("{payload} is not read: {error}"));
    assert_eq!(&read, value, "{payload} is read as another value");
}

/// The error of both ways of encoding.
#[track_caller]
fn refusal<T: Serialize + DeserializeOwned + Debug>(value: &T) -> String {
    let error = codec::encode_typed(value).expect_err("it would come back as another value");
    assert_eq!(codec::encode(value).expect_err("it would come back as another value"), error);
    error
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Name(String);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Wrapped(Option<u8>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(f64),
    Text(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Tagged {
    Nothing,
    Text(String),
    Pair(Option<String>, f64),
    Record { text: Option<String>, number: NumberOrText, name: Name },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum InnerTag {
    Nothing,
    Record { text: Option<String>, value: Value },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value")]
enum Adjacent {
    Nothing,
    Text(Option<String>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flattened {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Texts that look like JSON, and others.
fn texts() -> impl Strategy<Value = String> {
    let json = values().prop_map(|value| value.to_string());
    let quoted_again = values().prop_map(|value| Value::String(value.to_string()).to_string());
    let special = prop::sample::select(vec![
        "",
        " ",
        "null",
        " null ",
        "true",
        "5",
        "-0",
        "1e3",
        "\"",
        "\"\"",
        "\"a\"",
        "\"\\u0041\"",
        "[]",
        "{}",
        "{\"a\":1}",
        "NaN",
        "\"null\"",
        "\"5\"",
        "'",
        "nul",
        "0x1",
        "\u{0}",
        "\u{feff}5",
    ]);
    prop_oneof![any::<String>(), json, quoted_again, special.prop_map(str::to_owned)]
}

fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        any::<i32>().prop_map(f64::from)
    ]
}

/// JSON without numbers that JSON text itself does not keep apart.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        numbers().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec!["null", "5", "\"a\"", "[1]", "true"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(any::<String>(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn every_text_comes_back_from_every_type_that_is_written_as_a_string(text in texts()) {
        comes_back(&text);
        comes_back(&Some(text.clone()));
        comes_back(&Some(Some(text.clone())));
        comes_back(&Name(text.clone()));
        comes_back(&Some(Name(text.clone())));
        comes_back(&NumberOrText::Text(text.clone()));
        comes_back(&Value::String(text.clone()));
        comes_back(&text.clone().into_boxed_str());
        for letter in text.chars() {
            comes_back(&letter);
            comes_back(&Some(letter));
        }
        comes_back(&Tagged::Text(text.clone()));
        comes_back(&Adjacent::Text(Some(text.clone())));
        comes_back(&(text.clone(), Some(text.clone()), vec![text.clone()]));
        comes_back(&BTreeMap::from([(text.clone(), text.clone())]));
        comes_back(&Ok::<String, String>(text.clone()));
        comes_back(&Err::<String, String>(text));
    }

    #[test]
    fn every_float_comes_back(number in numbers()) {
        comes_back(&number);
        comes_back(&Some(number));
        comes_back(&NumberOrText::Number(number));
        comes_back(&vec![number]);
        #[expect(clippy::cast_possible_truncation, reason = "any float will do")]
        let single = number as f32;
        if single.is_finite() {
            comes_back(&single);
        }
    }

    #[test]
    fn every_json_value_comes_back(value in values()) {
        comes_back(&value);
        comes_back(&InnerTag::Record { text: value.as_str().map(Into::into), value: value.clone() });
        comes_back(&Flattened { note: None, rest: BTreeMap::from([("value".to_owned(), value)]) });
    }

    #[test]
    fn every_structure_comes_back(
        text in prop::option::of(texts()),
        number in numbers(),
        integers in vec(any::<(i64, u64)>(), 0..4),
        set in hash_set(texts(), 0..4),
        keyed in btree_map(any::<i32>(), texts(), 0..4),
    ) {
        let text_or_empty = text.clone().unwrap_or_default();
        comes_back(&Tagged::Pair(text.clone(), number));
        comes_back(&Tagged::Record {
            text: text.clone(),
            number: NumberOrText::Text(text_or_empty.clone()),
            name: Name(text_or_empty),
        });
        comes_back(&Adjacent::Text(text));
        comes_back(&integers);
        comes_back::<HashSet<String>>(&set);
        comes_back(&keyed);
    }

    #[test]
    fn integers_of_128_bits_come_back_or_are_refused(number: i128, unsigned: u128, small: i64) {
        comes_back(&i128::from(small));
        for payload in [codec::encode_typed(&number), codec::encode_typed(&Some(number))] {
            match payload {
                Ok(payload) => prop_assert_eq!(codec::decode::<i128>(&payload).unwrap(), number),
                Err(error) => prop_assert!(error.contains("more than 64 bits"), "{}", error),
            }
        }
        match codec::encode_typed(&unsigned) {
            Ok(payload) => prop_assert_eq!(codec::decode::<u128>(&payload).unwrap(), unsigned),
            Err(error) => prop_assert!(error.contains("more than 64 bits"), "{}", error),
        }
    }
}

#[test]
fn values_without_content_come_back() {
    comes_back(&());
    comes_back(&Unit);
    comes_back(&None::<String>);
    comes_back(&None::<Option<String>>);
    comes_back(&Wrapped(None));
    comes_back(&Tagged::Nothing);
    comes_back(&InnerTag::Nothing);
    comes_back(&Adjacent::Nothing);
    comes_back(&Adjacent::Text(None));
    comes_back(&(None::<()>, [None::<u8>, Some(1)]));
}

#[test]
fn quotes_are_only_put_around_what_would_be_read_as_something_else() {
    for text in ["abc", "5", "null", "{\"a\":1}", "\"open", ""] {
        assert_eq!(codec::encode_typed(&text.to_owned()).unwrap(), text);
    }
    assert_eq!(codec::encode_typed(&"\"a\"".to_owned()).unwrap(), r#""\"a\"""#);
    assert_eq!(codec::encode_typed(&Some("null".to_owned())).unwrap(), "\"null\"");
    assert_eq!(codec::encode_typed(&Value::from("5")).unwrap(), "\"5\"");
    assert_eq!(codec::encode_typed(&Value::from("abc")).unwrap(), "abc");
    assert_eq!(codec::encode_typed(&NumberOrText::Text("5".into())).unwrap(), "\"5\"");
}

#[test]
fn a_some_around_a_null_is_refused_at_any_depth() {
    let expected = "a Some around None, () or null cannot be encoded: it would be read back as None";
    assert_eq!(refusal(&Some(None::<u8>)), expected);
    assert_eq!(refusal(&Some(())), expected);
    assert_eq!(refusal(&Some(Unit)), expected);
    assert_eq!(refusal(&Some(Wrapped(None))), expected);
    assert_eq!(refusal(&Some(Value::Null)), expected);
    assert_eq!(refusal(&Some(Some(None::<u8>))), expected);
    assert_eq!(refusal(&vec![Some(Some(1)), Some(None)]), expected);
    assert_eq!(refusal(&BTreeMap::from([("key".to_owned(), Some(()))])), expected);
    assert_eq!(refusal(&(1, (Some(()),))), expected);
}

#[test]
fn a_float_that_is_not_finite_is_refused_at_any_depth() {
    let expected = "a number that is not finite cannot be encoded: JSON has neither NaN nor infinity";
    assert_eq!(refusal(&f64::NAN), expected);
    assert_eq!(refusal(&f32::INFINITY), expected);
    assert_eq!(refusal(&Some(f64::NEG_INFINITY)), expected);
    assert_eq!(refusal(&Tagged::Pair(None, f64::NAN)), expected);
    assert_eq!(refusal(&vec![vec![f32::NAN]]), expected);
}

#[test]
fn a_type_that_cannot_read_the_string_it_writes_is_refused() {
    #[derive(Debug, Serialize, Deserialize)]
    struct OneWay(#[serde(serialize_with = "as_text")] u32);

    fn as_text<S: serde::Serializer>(_: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("seven")
    }

    let error = codec::encode_typed(&OneWay(7)).unwrap_err();
    assert!(
        error.contains("OneWay cannot read back what it writes: invalid type: string \"seven\""),
        "{error}"
    );
}

#[test]
fn a_key_value_entry_that_json_cannot_hold_is_refused() {
    let set = |ctx: OrchestrationContext, _| async move {
        ctx.set_kv_value_typed("pulse", &f64::NAN);
        Ok(String::new())
    };
    let outcome = format!("{:?}", Harness::new(set).turn([]).outcome);
    assert!(outcome.contains("encoding the value of key pulse: a number that is not finite"), "{outcome}");
}

/// A map of another run has its keys in another order.
#[test]
fn the_text_of_a_key_value_entry_does_not_depend_on_the_order_of_a_map() {
    let set = |ctx: OrchestrationContext, _| async move {
        let counts: HashMap<String, usize> = (0..20).map(|key| (format!("key-{key}"), key)).collect();
        ctx.set_kv_value_typed("counts", &counts);
        ctx.schedule_wait("end").await;
        Ok(ctx.get_kv_value("counts").unwrap_or_default())
    };
    let texts = [(), ()].map(|()| {
        let mut harness = Harness::new(set);
        harness.turn([]);
        format!("{:?}", harness.turn([signal("end", "")]).outcome)
    });
    assert_eq!(texts[0], texts[1], "both runs should store the same text");
}

#[test]
fn a_value_that_is_too_deep_to_be_read_back_is_refused() {
    let nested = |levels: usize| (0..levels).fold(Value::from(1), |inner, _| Value::Array(vec![inner]));
    comes_back(&nested(127));
    assert!(refusal(&nested(128)).contains("nested more than 127 levels deep"));
    let fields =
        |levels: usize| (0..levels).fold(Value::from(1), |inner, _| serde_json::json!({ "inner": inner }));
    comes_back(&fields(127));
    assert!(refusal(&fields(128)).contains("nested more than 127 levels deep"));
}

/// Code that moved to the typed layer asks for the quoted form of what its history recorded, and the other way round.
#[test]
fn replay_accepts_the_quoted_and_the_unquoted_form_of_a_payload() {
    let raw = "\"a\"";
    let quoted = codec::encode_typed(&raw.to_owned()).unwrap();
    assert_ne!(quoted, raw);
    for (recorded, asked) in [(raw, quoted.as_str()), (quoted.as_str(), raw)] {
        let activity = EventKind::ActivityScheduled {
            name: "A".into(),
            input: recorded.into(),
            session_id: None,
            tag: None,
        };
        let child = EventKind::SubOrchestrationScheduled {
            name: "C".into(),
            instance: "sub::3".into(),
            input: recorded.into(),
        };
        let detached = EventKind::OrchestrationChained {
            name: "D".into(),
            instance: "d".into(),
            input: recorded.into(),
        };
        let asked = asked.to_owned();
        let code = move |ctx: OrchestrationContext, _| {
            let asked = asked.clone();
            async move {
                let activity = ctx.schedule_activity("A", asked.clone());
                let child = ctx.schedule_sub_orchestration("C", asked.clone());
                ctx.schedule_orchestration("D", "d", asked);
                let end = ctx.schedule_wait("end").await;
                drop((activity, child));
                Ok(end)
            }
        };
        let recorded = history([(None, activity), (None, child), (None, detached)]);
        let outcome = Harness::resumed(recorded, code).turn([]).outcome;
        assert_eq!(outcome, everturn_core::turn::TurnOutcome::Continue);
    }
}
