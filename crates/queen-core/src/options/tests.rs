//! Options: defaults, merging, refusals.

use super::*;
use proptest::prelude::*;

fn merged(json: &str) -> QueueOptions {
    QueueOptions::configured_default().merge(json, Mode::Merge).unwrap()
}

fn error(json: &str) -> OptionsError {
    QueueOptions::configured_default().merge(json, Mode::Merge).unwrap_err()
}

#[test]
fn json_has_exactly_the_options_under_their_wire_names() {
    let json = QueueOptions::configured_default().to_json();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = OPTION_NAMES.to_vec();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    // Every one of them is known to merge.
    assert_eq!(merged(&json), QueueOptions::configured_default());
    let stored: QueueOptions = serde_json::from_str(&json).unwrap();
    assert_eq!(stored, QueueOptions::configured_default());
}

#[test]
fn defaults_depend_on_how_the_queue_came_to_be() {
    let configured = QueueOptions::configured_default();
    assert_eq!((configured.lease_time, configured.retry_limit), (300, 3));
    assert_eq!((configured.ttl, configured.dedup_window_seconds), (3600, 3600));
    let pushed = QueueOptions::pushed_default("billing.invoice.eu");
    assert_eq!(pushed.lease_time, 60);
    assert_eq!((&*pushed.namespace, &*pushed.task), ("billing", "invoice"));
}

#[test]
fn an_absent_key_keeps_its_value_or_goes_back_to_the_default() {
    let options = merged(r#"{"leaseTime":10,"namespace":"n"}"#);
    let kept = options.merge(r#"{"retryLimit":5}"#, Mode::Merge).unwrap();
    assert_eq!((kept.lease_time, kept.retry_limit, &*kept.namespace), (10, 5, "n"));
    let replaced = options.merge(r#"{"retryLimit":5}"#, Mode::Replace).unwrap();
    assert_eq!((replaced.lease_time, replaced.retry_limit, &*replaced.namespace), (300, 5, ""));
    let pushed = QueueOptions::pushed_default("q");
    assert_eq!(pushed.merge("{}", Mode::Merge).unwrap().lease_time, 60);
    assert_eq!(pushed.merge("{}", Mode::Replace).unwrap().lease_time, 300);
}

#[test]
fn null_is_the_default_in_both_modes() {
    let options = merged(r#"{"leaseTime":10,"deadLetterQueue":false}"#);
    for mode in [Mode::Merge, Mode::Replace] {
        let merged = options.merge(r#"{"leaseTime":null,"deadLetterQueue":null}"#, mode).unwrap();
        assert_eq!((merged.lease_time, merged.dead_letter_queue), (300, true));
    }
}

#[test]
fn integers_come_in_several_spellings() {
    for value in ["5", "5.0", "5e0", "50e-1", "\"5\"", "\" 5 \"", "\"5.0\"", "\"+5\""] {
        assert_eq!(merged(&format!(r#"{{"retryLimit":{value}}}"#)).retry_limit, 5, "{value}");
    }
    for value in ["5.5", "\"\"", "\"five\"", "\"inf\"", "\"NaN\"", "true", "[]", "1e300", "\"5.5\""] {
        let error = error(&format!(r#"{{"retryLimit":{value}}}"#));
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{value}");
        assert!(error.to_string().contains("retryLimit"), "{error}");
    }
}

#[test]
fn ranges_are_refused_or_clamped() {
    for (name, bad) in [
        ("leaseTime", "0"),
        ("leaseTime", "604801"),
        ("retryLimit", "-1"),
        ("retentionSeconds", "2147483648"),
        ("retentionSinkHoldMaxSeconds", "59"),
        ("retentionSinkHoldMaxSeconds", "31536001"),
        ("retentionSinkHold", "\"a b\""),
        ("retentionSinkHold", "5"),
        ("deadLetterQueue", "1"),
        ("deadLetterQueue", "\"true\""),
        ("namespace", "\"a\\u0000\""),
        ("task", "7"),
        ("retryBackoff", "\"linear\""),
        ("retryBackoff", "1"),
        ("retryMaxDelay", "-1"),
        ("retryJitter", "1.01"),
        ("retryJitter", "-0.1"),
        ("retryJitter", "\"NaN\""),
        ("retryJitter", "true"),
        ("maxElapsedSeconds", "-1"),
        ("maxDeliveries", "-1"),
        ("deadlines", "1"),
        ("autoPauseCount", "-1"),
        ("autoPauseSeconds", "0"),
    ] {
        let error = error(&format!(r#"{{"{name}":{bad}}}"#));
        assert_eq!(error.option(), Some(name));
        assert!(error.to_string().contains("allowed"), "{error}");
        assert!(!error.to_string().chars().any(char::is_control));
    }
    assert_eq!(merged(r#"{"minPopWaitTime":99999}"#).min_pop_wait_time, 60_000);
    assert_eq!(merged(r#"{"minPopWaitTime":-5}"#).min_pop_wait_time, 0);
    assert_eq!(merged(r#"{"dedupWindowSeconds":-1}"#).dedup_window_seconds, 0);
    assert_eq!(merged(r#"{"leaseTime":604800}"#).lease_time, 604_800);
    let long = format!(r#"{{"retentionSinkHold":"{}"}}"#, "a".repeat(65));
    assert!(error(&long).to_string().len() < 200);
    assert_eq!(merged(r#"{"retentionSinkHold":"a.B_-9"}"#).retention_sink_hold, "a.B_-9");
}

#[test]
fn options_about_retries_are_off_until_they_are_set() {
    let off = QueueOptions::configured_default();
    assert_eq!((off.retry_backoff, off.retry_jitter.share(), off.retry_max_delay), (Backoff::None, 0.0, 0));
    assert_eq!((off.max_elapsed_seconds, off.max_deliveries, off.auto_pause_count), (0, 0, 0));
    assert_eq!((off.deadlines, off.auto_pause_seconds), (false, 300));
    let on = merged(r#"{"retryBackoff":"exponential","retryJitter":"0.25","deadlines":true}"#);
    assert_eq!((on.retry_backoff, on.retry_jitter.share(), on.deadlines), (Backoff::Exponential, 0.25, true));
    assert_eq!(merged(&on.to_json()), on);
    assert!(off.to_json().contains(r#""retryBackoff":"none","retryMaxDelay":0,"retryJitter":0,"#));
    assert!(on.to_json().contains(r#""retryBackoff":"exponential","retryMaxDelay":0,"retryJitter":0.25,"#));
}

#[test]
fn unknown_options_are_an_error_or_skipped() {
    let error = error(r#"{"leaseTimes":1}"#);
    assert_eq!(error.kind(), ErrorKind::UnknownOption);
    assert!(error.to_string().contains("leaseTimes") && error.to_string().contains("leaseTime,"));
    let options = QueueOptions::configured_default();
    let merged = options.merge_known(r#"{"leaseTimes":1,"leaseTime":9}"#, Mode::Merge).unwrap();
    assert_eq!(merged.lease_time, 9);
    assert!(options.merge_known(r#"{"leaseTime":0}"#, Mode::Merge).is_err());
}

#[test]
fn what_is_no_object_is_refused() {
    for json in ["", "[]", "5", "null", "{", "\"x\""] {
        assert_eq!(error(json).kind(), ErrorKind::InvalidOption, "{json}");
    }
    assert!(QueueOptions::configured_default().merge(&"[".repeat(100_000), Mode::Merge).is_err());
}

#[test]
fn either_switch_turns_dead_lettering_on() {
    assert!(merged("{}").dead_letter_enabled());
    assert!(merged(r#"{"deadLetterQueue":false}"#).dead_letter_enabled());
    assert!(merged(r#"{"dlqAfterMaxRetries":false}"#).dead_letter_enabled());
    let both = merged(r#"{"deadLetterQueue":false,"dlqAfterMaxRetries":false}"#);
    assert!(!both.dead_letter_enabled());
}

#[test]
fn modes_are_merge_and_replace() {
    assert_eq!(Mode::parse(None), Ok(Mode::Merge));
    assert_eq!(Mode::parse(Some("merge")), Ok(Mode::Merge));
    assert_eq!(Mode::parse(Some("replace")), Ok(Mode::Replace));
    let error = Mode::parse(Some("x")).unwrap_err();
    assert_eq!(error.to_string(), r#"mode must be "merge" or "replace", got "x""#);
}

proptest! {
    #[test]
    fn merging_is_idempotent_and_its_json_reads_back(
        lease in 1i32..=604_800, wait in any::<i32>(), hold in "[A-Za-z0-9._-]{0,64}",
        namespace in "[a-zé .]{0,40}", encrypted in any::<bool>(), priority in any::<i32>(),
    ) {
        let change = serde_json::json!({
            "leaseTime": lease, "minPopWaitTime": wait, "retentionSinkHold": hold,
            "namespace": namespace, "encryptionEnabled": encrypted, "priority": priority,
        }).to_string();
        let once = merged(&change);
        prop_assert_eq!(&once.merge(&change, Mode::Merge).unwrap(), &once);
        prop_assert_eq!(&merged(&once.to_json()), &once);
        prop_assert_eq!(&QueueOptions::pushed_default("x.y").merge(&once.to_json(), Mode::Merge).unwrap(), &once);
        prop_assert_eq!(&once.merge("{}", Mode::Replace).unwrap(), &QueueOptions::configured_default());
    }

    #[test]
    fn arbitrary_text_never_panics(text in ".{0,60}", value in ".{0,30}", at in 0..OPTION_NAMES.len()) {
        let options = QueueOptions::configured_default();
        let _ = options.merge(&text, Mode::Merge);
        let _ = options.merge(&serde_json::json!({ OPTION_NAMES[at]: value }).to_string(), Mode::Replace);
        let _ = options.merge(&format!(r#"{{"{}":{value}}}"#, OPTION_NAMES[at]), Mode::Replace);
    }
}

#[test]
fn options_of_dead_letters_are_off_by_default_and_checked() {
    let options = QueueOptions::configured_default();
    assert_eq!(options.dead_letter_queue_of("q"), None);
    assert_eq!((options.dead_letter_payload, options.require_approval), (Evidence::Keep, false));
    for (json, queue, wanted) in [
        (r#"{"deadLetterTo":".dead"}"#, "q", Some("q.dead")),
        (r#"{"deadLetterTo":"graves"}"#, "q", Some("graves")),
        (r#"{"deadLetterTo":"graves"}"#, "graves", None),
    ] {
        assert_eq!(merged(json).dead_letter_queue_of(queue).as_deref(), wanted, "{json}");
    }
    assert_eq!(merged(r#"{"deadLetterTo":".dead"}"#).dead_letter_queue_of(&"q".repeat(255)), None);
    let rules = r#"{"deadLetterRules":[{"pattern":"(?i)timeout","class":"transient","code":"T"}]}"#;
    assert_eq!(merged(&merged(rules).to_json()), merged(rules));
    for bad in [
        r#"{"deadLetterTo":"."}"#,
        r#"{"deadLetterTo":1}"#,
        r#"{"deadLetterRules":{}}"#,
        r#"{"deadLetterRules":[{"pattern":"(","class":"transient"}]}"#,
        r#"{"deadLetterRules":[{"pattern":"a","class":"odd"}]}"#,
        r#"{"deadLetterRules":[{"pattern":"a","class":"poison","more":1}]}"#,
        r#"{"deadLetterPayload":"drop"}"#,
        r#"{"redactionAllow":"$.a"}"#,
        r#"{"redactionAllow":["a"]}"#,
        r#"{"requireApproval":"yes"}"#,
        r#"{"owner":5}"#,
    ] {
        assert_eq!(error(bad).kind(), ErrorKind::InvalidOption, "{bad}");
    }
}
