//! What survives: crashes, killed consumers, dump and restore, drop and create, restarts, a server that did not preload.

mod answers;
mod crash;
mod damaged_pages;
mod dump;
mod exactly_once;
mod lifecycle;
mod replay;
mod worked;
