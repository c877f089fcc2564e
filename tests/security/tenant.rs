//! A login pinned to a tenant stays there.

use crate::{ask, database, rows};
use queen_tests::{Cluster, shared_cluster};

const OTHER: &str = "00000000-0000-0000-0000-0000000000aa";
const DEFAULT: &str = "00000000-0000-0000-0000-000000000001";

#[tokio::test]
async fn a_plain_role_cannot_set_the_tenant_in_any_way() {
    let (db, _) = database().await;
    shared_cluster().create_login("tenant_plain", &["queen_admin"]);
    let client = shared_cluster().client_as(&db, "tenant_plain").await;
    for sql in [
        format!("SET queen.tenant = '{OTHER}'"),
        format!("SET LOCAL queen.tenant = '{OTHER}'"),
        format!("SELECT set_config('queen.tenant', '{OTHER}', false)"),
        format!("ALTER ROLE tenant_plain SET queen.tenant = '{OTHER}'"),
        format!("ALTER ROLE CURRENT_USER SET queen.tenant = '{OTHER}'"),
        format!("ALTER DATABASE {db} SET queen.tenant = '{OTHER}'"),
        format!("ALTER SYSTEM SET queen.tenant = '{OTHER}'"),
        format!("UPDATE pg_settings SET setting = '{OTHER}' WHERE name = 'queen.tenant'"),
        format!("CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SET queen.tenant = '{OTHER}' AS 'SELECT 1'"),
    ] {
        assert_eq!(ask(&client, &sql).await, Err("42501".to_owned()), "{sql}");
    }
    assert_eq!(rows(&client, "SELECT queen.current_tenant()").await, DEFAULT);
    assert_eq!(rows(&client, "SHOW queen.tenant").await, DEFAULT);
}

#[tokio::test]
async fn connection_options_do_not_set_it_either() {
    let (db, _) = database().await;
    shared_cluster().create_login("tenant_options", &["queen_admin"]);
    let mut command = shared_cluster().psql_command(&db);
    let output = command
        .args(["-U", "tenant_options", "-qAtc", "SELECT queen.current_tenant()"])
        .env("PGOPTIONS", format!("-c queen.tenant={OTHER}"))
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!shown.contains(OTHER), "{shown}");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("permission denied"), "{error}");
}

#[tokio::test]
async fn a_pinned_login_sees_its_tenant_only_and_cannot_leave_it() {
    let (db, admin) = database().await;
    shared_cluster().create_login("tenant_pinned", &["queen_admin"]);
    rows(&admin, &format!("ALTER ROLE tenant_pinned SET queen.tenant = '{OTHER}'")).await;
    let client = shared_cluster().client_as(&db, "tenant_pinned").await;
    for sql in [
        "RESET queen.tenant".to_owned(),
        "SET queen.tenant TO DEFAULT".to_owned(),
        format!("SET queen.tenant = '{DEFAULT}'"),
        "ALTER ROLE tenant_pinned RESET queen.tenant".to_owned(),
    ] {
        let answer = ask(&client, &sql).await;
        assert!(answer.is_ok() || answer == Err("42501".to_owned()), "{sql}: {answer:?}");
        assert_eq!(rows(&client, "SELECT queen.current_tenant()").await, OTHER, "{sql}");
    }
    for sql in ["RESET ALL", "DISCARD ALL"] {
        rows(&client, sql).await;
        assert_eq!(rows(&client, "SELECT queen.current_tenant()").await, OTHER, "{sql}");
    }
    assert_eq!(rows(&client, "SELECT count(*) FROM queen.queues").await, "0");
    rows(&client, "SELECT queen.push('mine', '1')").await;
    assert_eq!(rows(&admin, "SELECT queue FROM queen.queues").await, "q");
    assert_eq!(rows(&client, "SELECT queue FROM queen.queues").await, "mine");
}

#[tokio::test]
async fn a_superuser_may_grant_the_right_to_change_it() {
    let (db, admin) = database().await;
    shared_cluster().create_login("tenant_granted", &["queen_viewer"]);
    rows(&admin, "GRANT SET ON PARAMETER queen.tenant TO tenant_granted").await;
    let client = shared_cluster().client_as(&db, "tenant_granted").await;
    rows(&client, &format!("SET queen.tenant = '{OTHER}'")).await;
    assert_eq!(rows(&client, "SELECT queen.current_tenant()").await, OTHER);
    assert_eq!(rows(&client, "SELECT count(*) FROM queen.queues").await, "0");
    rows(&admin, "REVOKE SET ON PARAMETER queen.tenant FROM tenant_granted").await;
}

/// Without the library in memory anybody can set anything under its prefix, in place of what the role is pinned to. The
/// server drops that when the library comes, and the default tenant was left: a way out of a pinned tenant. So such a
/// session is refused; a pinned one that sets nothing works.
#[tokio::test]
async fn a_tenant_set_before_the_library_was_loaded_is_refused() {
    let cluster = Cluster::start_with(&[("shared_preload_libraries", "")]);
    let db = cluster.fresh_database().await;
    let admin = cluster.client(&db).await;
    rows(&admin, "SELECT queen.push('q', '1')").await;
    cluster.create_login("early", &["queen_admin"]);
    for first in [
        "SELECT queen.push('theirs', '1')",
        "SELECT count(*) FROM queen.queues",
        "SELECT count(*) FROM queen.pop('q')",
        "SELECT count(*) FROM queen.messages()",
        "SELECT queen.current_tenant()",
        "SELECT count(*) FROM queen.dlq_depth",
    ] {
        let client = cluster.client_as(&db, "early").await;
        rows(&client, &format!("SET queen.tenant = '{OTHER}'")).await;
        for sql in [first, "SELECT queen.current_tenant()"] {
            assert_eq!(ask(&client, sql).await, Err("42501".to_owned()), "{first}: {sql}");
        }
    }
    rows(&admin, &format!("ALTER ROLE early SET queen.tenant = '{OTHER}'")).await;
    let client = cluster.client_as(&db, "early").await;
    assert_eq!(rows(&client, "SELECT queen.current_tenant()").await, OTHER);
    let mut command = cluster.psql_command(&db);
    let output = command
        .args(["-U", "early", "-qAtc", "SELECT queen.current_tenant()"])
        .env("PGOPTIONS", format!("-c queen.tenant={DEFAULT}"))
        .output()
        .unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let tenants = rows(&admin, "SELECT DISTINCT tenant FROM queen.queue").await;
    assert_eq!(tenants, DEFAULT);
}
