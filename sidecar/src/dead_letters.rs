//! What is asked of the database about dead letters: one statement each, for the routes and for the command line.

use crate::database::Statement;
use tokio_postgres::types::Type;

/// `{"records", "next"}`: the filters of `dlq_list`, cursor, limit, whether redacted.
pub const LIST: Statement = Statement {
    sql: "SELECT queen.dlq_list_json($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, $10, $11)",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::BOOL,
    ],
};
/// One record with what happened to it.
pub const RECORD: Statement =
    Statement { sql: include_str!("../sql/dlq_record.sql"), types: &[Type::UUID, Type::BOOL] };
/// Figures by queue and consumer group.
pub const STATS: Statement =
    Statement { sql: include_str!("../sql/dlq_stats.sql"), types: &[Type::TEXT, Type::TEXT, Type::INT4] };
/// The audit.
pub const EVENTS: Statement = Statement {
    sql: include_str!("../sql/dlq_events.sql"),
    types: &[Type::TEXT, Type::UUID, Type::UUID, Type::INT8, Type::INT4],
};
/// The plans, newest first.
pub const PLANS: Statement =
    Statement { sql: include_str!("../sql/replay_plans.sql"), types: &[Type::TEXT, Type::INT4] };
/// How far a plan is.
pub const PLAN: Statement = Statement { sql: "SELECT queen.dlq_plan_status($1)::text", types: &[Type::UUID] };
/// A new plan. What is absent is what `dlq_plan` takes when it is left out.
pub const MAKE_PLAN: Statement = Statement {
    sql: "SELECT queen.dlq_plan($1, $2, $3, $4::text::jsonb, $5, $6, coalesce($7::text::numeric, 10), coalesce($8, 10), \
          coalesce($9, false), coalesce($10::text::interval, '24 hours'), coalesce($11, 100000), coalesce($12, false), $13::text::json)::text",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::UUID_ARRAY,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::BOOL,
        Type::TEXT,
        Type::INT4,
        Type::BOOL,
        Type::TEXT,
    ],
};
/// A second person's yes, with a note.
pub const APPROVE: Statement =
    Statement { sql: "SELECT queen.dlq_approve($1, $2)::text", types: &[Type::UUID, Type::TEXT] };
/// Starts a plan.
pub const RUN: Statement = Statement { sql: "SELECT queen.dlq_run($1)::text", types: &[Type::UUID] };
/// Lets it go on behind its canary.
pub const WIDEN: Statement = Statement { sql: "SELECT queen.dlq_widen($1)::text", types: &[Type::UUID] };
/// Stops it for a while.
pub const PAUSE: Statement = Statement { sql: "SELECT queen.dlq_pause_plan($1)::text", types: &[Type::UUID] };
/// Lets it go on.
pub const RESUME: Statement = Statement { sql: "SELECT queen.dlq_resume_plan($1)::text", types: &[Type::UUID] };
/// Ends it, with a note.
pub const CANCEL: Statement =
    Statement { sql: "SELECT queen.dlq_cancel_plan($1, $2)::text", types: &[Type::UUID, Type::TEXT] };
/// Whether a queue has a consumer group: `{"paused"}`. No row: it has none.
pub const GROUP: Statement = Statement {
    sql: "SELECT json_build_object('paused', c.paused_at IS NOT NULL)::text FROM queen.consumer_groups c \
          WHERE c.queue = $1 AND c.consumer_group = $2",
    types: &[Type::TEXT, Type::TEXT],
};
/// Stops a consumer group in a queue: queue, group, reason. Answers whether that changed anything.
pub const PAUSE_GROUP: Statement =
    Statement { sql: "SELECT queen.pause_group($1, $2, $3)::text", types: &[Type::TEXT, Type::TEXT, Type::TEXT] };
/// Lets it go on.
pub const RESUME_GROUP: Statement =
    Statement { sql: "SELECT queen.resume_group($1, $2)::text", types: &[Type::TEXT, Type::TEXT] };
/// Whether a queue exists.
pub const HAS_QUEUE: Statement =
    Statement { sql: "SELECT EXISTS (SELECT FROM queen.queues WHERE queue = $1)::text", types: &[Type::TEXT] };
/// Replays a record with another payload: record, payload, reason, queue, partition.
pub const REPAIR: Statement = Statement {
    sql: "SELECT queen.dlq_repair($1, $2::text::json, $3, $4, $5)::text",
    types: &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
};
/// Decides against a replay: records, cause, note. Answers how many.
pub const DISCARD: Statement =
    Statement { sql: "SELECT queen.dlq_discard($1, $2, $3)::text", types: &[Type::UUID_ARRAY, Type::TEXT, Type::TEXT] };

/// What speaks against going on behind the canary: messages of it that failed again, or have not been settled yet.
pub fn unproven(status: &serde_json::Value) -> Option<String> {
    let of = |key: &str| status["canary"][key].as_u64().unwrap_or(0);
    let parts = [(of("failedAgain"), "failed again"), (of("stillPending"), "still pending")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether this state of the database says that a value given could not be read: a time, an interval, a number, JSON or a
/// JSON path.
pub fn is_unreadable(state: &str) -> bool {
    matches!(state, "22003" | "22007" | "22008" | "22015" | "22021" | "22023" | "22P02" | "22P05" | "42601")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_canary_is_proven_when_all_of_it_is_settled_and_none_failed_again() {
        let of =
            |again: u64, pending: u64| unproven(&json!({"canary": {"failedAgain": again, "stillPending": pending}}));
        assert_eq!(of(0, 0), None);
        assert_eq!(of(3, 0).as_deref(), Some("3 failed again"));
        assert_eq!(of(0, 2).as_deref(), Some("2 still pending"));
        assert_eq!(of(3, 2).as_deref(), Some("3 failed again, 2 still pending"));
        assert_eq!(unproven(&json!({"canary": {"size": 0}})), None, "without a canary");
    }
}
