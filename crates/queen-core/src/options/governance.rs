//! The options that say who decides about dead letters and what is kept of them: changing one is itself worth an audit.

use super::QueueOptions;
use crate::mask::mask;
use serde_json::{Map, Value, json};

/// By their wire names, in the order of the documentation.
pub const GOVERNANCE_OPTIONS: [&str; 12] = [
    "deadLetterQueue",
    "dlqAfterMaxRetries",
    "encryptionEnabled",
    "deadLetterTo",
    "deadLetterRules",
    "deadLetterPayload",
    "redactionAllow",
    "requireApproval",
    "owner",
    "runbook",
    "severity",
    "autoPauseCount",
];

impl QueueOptions {
    /// What of the governance is another in `to`: `{"requireApproval": {"from": true, "to": false}}`; None: nothing.
    /// Credentials in texts for people (an address, say) are masked: what is audited cannot be taken back.
    pub fn governance_changes(&self, to: &Self) -> Option<Value> {
        let (before, after) = (self.governance(), to.governance());
        let changes: Map<String, Value> = GOVERNANCE_OPTIONS
            .iter()
            .filter(|name| before[**name] != after[**name])
            .map(|name| ((*name).to_owned(), json!({"from": shown(name, &before), "to": shown(name, &after)})))
            .collect();
        (!changes.is_empty()).then_some(Value::Object(changes))
    }

    fn governance(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn shown(name: &str, options: &Value) -> Value {
    match &options[name] {
        Value::String(text) if matches!(name, "owner" | "runbook" | "severity") => mask(text).into_owned().into(),
        value => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Mode, OPTION_NAMES};

    #[test]
    fn every_governance_option_that_differs_is_named_with_both_values_and_nothing_else_is() {
        let before = QueueOptions::configured_default();
        assert_eq!(before.governance_changes(&before), None);
        assert!(GOVERNANCE_OPTIONS.iter().all(|name| OPTION_NAMES.contains(name)));
        let changed =
            r#"{"leaseTime": 7, "encryptionEnabled": true, "requireApproval": true, "redactionAllow": ["$.a"]}"#;
        let after = before.merge(changed, Mode::Merge).unwrap();
        assert_eq!(
            before.governance_changes(&after),
            Some(json!({
                "encryptionEnabled": {"from": false, "to": true},
                "redactionAllow": {"from": [], "to": ["$.a"]},
                "requireApproval": {"from": false, "to": true},
            }))
        );
        let lease = before.merge(r#"{"leaseTime": 7}"#, Mode::Merge).unwrap();
        assert_eq!(before.governance_changes(&lease), None);
    }

    #[test]
    fn a_credential_in_an_address_is_not_audited() {
        let before = QueueOptions::configured_default();
        let after = before.merge(r#"{"runbook": "https://app:hunter2@wiki.example/x"}"#, Mode::Merge).unwrap();
        let changes = before.governance_changes(&after).unwrap().to_string();
        assert!(changes.contains("wiki.example") && !changes.contains("hunter2"), "{changes}");
    }
}
