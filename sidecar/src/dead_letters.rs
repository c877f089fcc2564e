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
          coalesce($9, false), coalesce($10::text::interval, '24 hours'), coalesce($11, 100000), coalesce($12, false))::text",
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
/// Replays a record with another payload: record, payload, reason, queue, partition.
pub const REPAIR: Statement = Statement {
    sql: "SELECT queen.dlq_repair($1, $2::text::json, $3, $4, $5)::text",
    types: &[Type::UUID, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
};
/// Decides against a replay: records, cause, note. Answers how many.
pub const DISCARD: Statement =
    Statement { sql: "SELECT queen.dlq_discard($1, $2, $3)::text", types: &[Type::UUID_ARRAY, Type::TEXT, Type::TEXT] };

/// Whether this state of the database says that a value given could not be read: a time, an interval, a number, JSON or a
/// JSON path.
pub fn is_unreadable(state: &str) -> bool {
    matches!(state, "22003" | "22007" | "22008" | "22015" | "22021" | "22023" | "22P02" | "22P05" | "42601")
}
