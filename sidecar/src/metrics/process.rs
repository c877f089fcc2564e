//! What the kernel says about this process. Zero where it says nothing.

/// Kernel ticks are hundredths of a second to programs, whatever the kernel uses inside.
const MICROS_PER_TICK: u64 = 10_000;

/// Resident memory in bytes.
pub fn resident_bytes() -> u64 {
    let kib = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse::<u64>().ok()
    };
    kib().unwrap_or(0) * 1024
}

/// Processor time so far in microseconds: user, system.
pub fn cpu_micros() -> (u64, u64) {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name, in parentheses, may hold anything.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some((fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?))
    };
    let (user, system) = ticks().unwrap_or_default();
    (user * MICROS_PER_TICK, system * MICROS_PER_TICK)
}

/// The name of this host.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_memory_and_a_host() {
        assert!(super::resident_bytes() > 100_000);
        assert!(!super::hostname().is_empty());
        let began = super::cpu_micros();
        let mut n = 1_u64;
        while super::cpu_micros().0 == began.0 {
            n = std::hint::black_box(n.wrapping_mul(3));
        }
    }
}
