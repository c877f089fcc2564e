//! A login of each role: what it may call, and what it is refused.
