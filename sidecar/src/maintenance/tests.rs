//! The switches, without a database.

use super::*;
use crate::config::Config;
use clap::Parser;

#[derive(Parser)]
struct Settings {
    #[command(flatten)]
    config: Config,
}

/// A database that nobody reaches.
fn nowhere() -> Database {
    let settings = Settings::parse_from(["queen", "--database-url", "postgresql://nobody@127.0.0.1:1/none"]);
    Database::new(&settings.config).unwrap()
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("queen-maintenance-{}", uuid::Uuid::new_v4()))
}

fn record() -> Record {
    Record { tenant: crate::tenant::Tenant::default(), items: 3, array: "[1,2,3]".to_owned() }
}

/// Until the folder can be taken again: the thread and the task of the one before end a little later.
async fn reopened(folder: &Path) -> Maintenance {
    loop {
        let maintenance = Maintenance::new(folder, nowhere());
        if maintenance.status().healthy {
            return maintenance;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_switches_and_the_buffer_survive_a_restart() {
    let folder = folder();
    let maintenance = Maintenance::new(&folder, nowhere());
    assert!(maintenance.divert().is_none());
    maintenance.turn_pushes(true).unwrap();
    maintenance.turn_pops(true).unwrap();
    let turn = maintenance.divert().unwrap();
    assert!(maintenance.store(turn, &record()).await);
    drop(maintenance);
    let maintenance = reopened(&folder).await;
    assert!(maintenance.pushes_paused() && maintenance.pops_paused());
    assert_eq!(maintenance.status().pending, 3);
    maintenance.turn_pops(false).unwrap();
    assert!(!maintenance.pops_paused());
    _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn pushes_go_to_the_buffer_until_it_is_drained() {
    let folder = folder();
    let maintenance = Maintenance::new(&folder, nowhere());
    maintenance.turn_pushes(true).unwrap();
    let turn = maintenance.divert().unwrap();
    assert!(maintenance.store(turn, &record()).await);
    maintenance.turn_pushes(false).unwrap();
    // Nobody can take it: the order has to be kept.
    assert!(!maintenance.pushes_paused());
    assert!(maintenance.divert().is_some());
    _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn without_a_folder_nothing_can_be_switched_on_until_there_is_one() {
    let folder = folder();
    std::fs::write(&folder, "a file stands here").unwrap();
    let maintenance = Maintenance::new(&folder, nowhere());
    assert!(maintenance.turn_pushes(true).is_err() && maintenance.turn_pops(true).is_err());
    assert!(!maintenance.pushes_paused() && !maintenance.pops_paused() && maintenance.divert().is_none());
    assert!(maintenance.turn_pushes(false).is_ok());
    assert_eq!(maintenance.status(), BufferStatus::default());
    std::fs::remove_file(&folder).unwrap();
    maintenance.turn_pushes(true).unwrap();
    assert!(maintenance.pushes_paused() && maintenance.status().healthy);
    _ = std::fs::remove_dir_all(folder);
}
