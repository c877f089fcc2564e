//! The stability ledger: everything that the extension has, and whether it says what it is.

use crate::{database, rows};
use queen_tests::compare;
use std::path::Path;

/// Everything by line. A line that changes or goes is a promise broken; one that is new is a promise made.
const SURFACE: &str = r#"
    WITH member AS (
        SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
         WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'queen'),
    granted AS (
        SELECT 'pg_proc'::regclass AS classid, oid AS objid, proacl AS acl FROM pg_proc
        UNION ALL SELECT 'pg_class'::regclass, oid, relacl FROM pg_class
        UNION ALL SELECT 'pg_namespace'::regclass, oid, nspacl FROM pg_namespace),
    roles AS (
        SELECT g.classid, g.objid, string_agg(DISTINCT a.grantee::regrole::text, ' ' ORDER BY a.grantee::regrole::text) AS names
          FROM granted g CROSS JOIN aclexplode(g.acl) a WHERE a.grantee <> a.grantor GROUP BY 1, 2),
    columns AS (
        SELECT attrelid, string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) AS list
          FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped GROUP BY 1),
    line AS (
        SELECT format('%s queen.%s(%s)%s', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END, p.proname,
                      pg_get_function_arguments(p.oid), ' RETURNS ' || pg_get_function_result(p.oid)) AS text, m.classid, m.objid
          FROM member m JOIN pg_proc p ON p.oid = m.objid WHERE m.classid = 'pg_proc'::regclass
        UNION ALL
        SELECT CASE WHEN c.relkind = 'v' AND r.names IS NOT NULL THEN format('view queen.%s(%s)', c.relname, k.list)
                    ELSE format('internal %s queen.%s', CASE c.relkind WHEN 'v' THEN 'view' WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence'
                                                                      ELSE c.relkind::text END, c.relname) END, m.classid, m.objid
          FROM member m JOIN pg_class c ON c.oid = m.objid LEFT JOIN columns k ON k.attrelid = c.oid
          LEFT JOIN roles r ON r.classid = m.classid AND r.objid = m.objid WHERE m.classid = 'pg_class'::regclass
        UNION ALL
        SELECT format('type queen.%s(%s)', t.typname, k.list), m.classid, m.objid
          FROM member m JOIN pg_type t ON t.oid = m.objid JOIN columns k ON k.attrelid = t.typrelid
          JOIN pg_class c ON c.oid = t.typrelid
         WHERE m.classid = 'pg_type'::regclass AND c.relkind = 'c'
        UNION ALL
        SELECT (pg_identify_object(m.classid, m.objid, 0)).type || ' ' || (pg_identify_object(m.classid, m.objid, 0)).identity, m.classid, m.objid
          FROM member m
         WHERE m.classid NOT IN ('pg_proc'::regclass, 'pg_class'::regclass)
           AND NOT (m.classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type t WHERE t.oid = m.objid AND (t.typrelid <> 0 OR t.typelem <> 0)))
        UNION ALL
        SELECT format('setting %s %s = %s%s', name, CASE context WHEN 'user' THEN 'anybody' ELSE context END, boot_val, ' ' || unit), NULL, NULL
          FROM pg_settings WHERE name LIKE 'queen.%'
        UNION ALL
        SELECT format('role %s%s', r.rolname, (SELECT ' IN ' || string_agg(m.roleid::regrole::text, ' ' ORDER BY m.roleid::regrole::text)
                                                FROM pg_auth_members m WHERE m.member = r.oid)), NULL, NULL
          FROM pg_roles r WHERE r.rolname IN ('queen_producer', 'queen_consumer', 'queen_viewer', 'queen_operator', 'queen_admin', 'queen_sidecar'))
    SELECT line.text || coalesce(' TO ' || r.names, '')
      FROM line LEFT JOIN roles r ON r.classid = line.classid AND r.objid = line.objid
     ORDER BY (line.text || coalesce(' TO ' || r.names, '')) COLLATE "C"
"#;

#[tokio::test]
async fn the_surface_is_what_the_ledger_says() {
    let (_, admin) = database().await;
    let mut surface = rows(&admin, SURFACE).await.replace(" RETURNS ~", "");
    // Secret settings are in no list; that they exist can be asked.
    for setting in ["queen.encryption_keys", "queen.encryption_key_file"] {
        surface.push_str(&format!("\nsecret {setting} shown as {}", rows(&admin, &format!("SHOW {setting}")).await));
    }
    surface.push('\n');
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("security/surface.txt");
    if let Err(diff) = compare::expect_file(&file, &surface) {
        panic!("{diff}");
    }
}

#[tokio::test]
async fn unknown_settings_of_the_prefix_are_refused() {
    let (_, admin) = database().await;
    assert_eq!(crate::ask(&admin, "SET queen.no_such_setting = 1").await, Err("42602".to_owned()));
}

#[tokio::test]
async fn everything_public_has_a_comment() {
    let (_, admin) = database().await;
    let silent = rows(
        &admin,
        "SELECT 'function ' || p.oid::regprocedure FROM pg_proc p
          WHERE pronamespace = 'queen'::regnamespace AND length(coalesce(obj_description(p.oid, 'pg_proc'), '')) < 20
         UNION ALL
         SELECT 'view ' || c.oid::regclass FROM pg_class c
          WHERE relnamespace = 'queen'::regnamespace AND relkind = 'v' AND obj_description(c.oid, 'pg_class') IS NULL
         UNION ALL
         SELECT 'column ' || c.oid::regclass || '.' || attname FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0
          WHERE relnamespace = 'queen'::regnamespace AND (relkind = 'c' OR relkind = 'v' AND relacl::text LIKE '%queen_viewer%')
            AND col_description(c.oid, attnum) IS NULL
         UNION ALL
         SELECT 'type ' || t.oid::regtype FROM pg_type t JOIN pg_class c ON c.oid = typrelid
          WHERE typnamespace = 'queen'::regnamespace AND relkind = 'c' AND obj_description(t.oid, 'pg_type') IS NULL
         UNION ALL
         SELECT 'schema' WHERE obj_description('queen'::regnamespace, 'pg_namespace') IS NULL
         UNION ALL
         SELECT 'extension' FROM pg_extension e WHERE extname = 'queen' AND obj_description(e.oid, 'pg_extension') IS NULL
         UNION ALL
         SELECT 'setting ' || name FROM pg_settings WHERE name LIKE 'queen.%' AND (short_desc IS NULL OR extra_desc IS NULL)",
    )
    .await;
    assert_eq!(silent, "");
}

#[tokio::test]
async fn every_function_comment_has_an_example() {
    let (_, admin) = database().await;
    let without = rows(
        &admin,
        "SELECT p.oid::regprocedure FROM pg_proc p
          WHERE pronamespace = 'queen'::regnamespace AND obj_description(p.oid, 'pg_proc') NOT LIKE E'%\\nExample: %'",
    )
    .await;
    assert_eq!(without, "");
}
