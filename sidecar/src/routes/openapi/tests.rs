//! The document against the router.

use super::*;
use crate::auth::{Level, required};
use crate::config::Config;
use axum::body::Body;
use axum::http::{Method, Request, header};
use clap::Parser;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tower::ServiceExt;

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    config: Config,
}

/// A router whose database does not exist: nothing here may need one.
fn router() -> Router {
    let arguments = ["queen", "--database-url", "host=/nonexistent user=nobody dbname=none"];
    crate::routes::router(crate::server::app(Settings::parse_from(arguments).config).unwrap())
}

/// Methods of each path, upper case.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, methods)| {
            (path.clone(), methods.as_object().unwrap().keys().map(|m| m.to_ascii_uppercase()).collect())
        })
        .collect()
}

/// With something in the place of each parameter.
fn concrete(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

/// What the router allows there: no route has OPTIONS, so the answer is a 405 that lists those it has.
async fn allowed(router: &Router, path: &str) -> Option<BTreeSet<String>> {
    let request = Request::builder().method(Method::OPTIONS).uri(concrete(path)).body(Body::empty()).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let allow = answer.headers().get(header::ALLOW)?.to_str().unwrap();
    Some(allow.split(',').map(str::to_owned).filter(|m| m != "HEAD").collect())
}

#[tokio::test]
async fn every_operation_of_the_document_is_served_and_every_method_served_there_is_documented() {
    let router = router();
    for (path, methods) in documented() {
        assert_eq!(allowed(&router, &path).await, Some(methods), "{path}");
    }
}

#[test]
fn every_path_of_the_router_is_documented() {
    let documented = documented();
    let mut served = 0;
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/routes")) {
        // axum does not list its routes; each is a literal in a call of `route`.
        let source = std::fs::read_to_string(&file).unwrap();
        for call in source.split(".route(").skip(1) {
            let literal = call.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'));
            let (path, _) = literal.unwrap_or_else(|| panic!("{}: a route that is no literal", file.display()));
            assert!(documented.contains_key(path), "{path} is served and not documented ({})", file.display());
            served += 1;
        }
    }
    assert!(served >= documented.len(), "only {served} routes found: are they still written this way?");
}

/// All files below a folder but this one.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|file| !file.ends_with("openapi/tests.rs")).collect()
}

#[test]
fn the_level_of_each_operation_is_the_one_that_is_demanded() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let demanded = match required(&method.to_ascii_uppercase().parse().unwrap(), &concrete(path)) {
                Level::Public => "public",
                Level::ReadOnly => "read-only",
                Level::WriteOnly => "write-only",
                Level::ReadWrite => "read-write",
                Level::Admin => "admin",
            };
            assert_eq!(operation["x-level"], demanded, "{method} {path}");
        }
    }
}

/// What a reader of the document relies on.
#[test]
fn operations_have_names_of_their_own_and_describe_what_they_take_and_answer() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let place = format!("{method} {path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{place}");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{place}");
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let in_path: BTreeSet<&str> =
                parameters.iter().filter(|p| p["in"] == "path").map(|p| p["name"].as_str().unwrap()).collect();
            let named: BTreeSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(in_path, named, "{place}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                let bare = response.get("content").is_none() && response.get("$ref").is_none();
                assert_eq!(bare, status == "204" || status.starts_with('3'), "{place} {status}");
            }
            let public = operation["x-level"] == "public";
            assert_eq!(operation["responses"].get("403").is_none(), public, "{place}");
        }
    }
}

/// A reference to nowhere makes a document useless to most tools.
#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}
