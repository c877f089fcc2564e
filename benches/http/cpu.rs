//! CPU time and memory of other processes, from /proc.

/// Seconds of CPU that a process and its children have used, those that have ended included.
pub fn seconds(pid: u32) -> f64 {
    let living: f64 = children(pid).into_iter().map(ticks).sum();
    (ticks(pid) + living) / 100.0
}

/// Resident bytes of a process alone.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

fn ticks(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let field = |n: usize| rest.split_whitespace().nth(n).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    // utime, stime, and the same of children that have ended.
    field(11) + field(12) + field(13) + field(14)
}
