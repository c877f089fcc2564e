//! Roles, and which levels they satisfy.

use super::levels::Level;

/// What a token lets its bearer do. A token may have several roles; one that suffices is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Everything.
    Admin,
    /// Looking, pushing, consuming, configuring.
    ReadWrite,
    /// Looking.
    ReadOnly,
    /// Pushing.
    WriteOnly,
}

impl Role {
    /// Whether the role may use a route of this level.
    pub fn satisfies(self, level: Level) -> bool {
        match level {
            Level::Public => true,
            Level::ReadOnly => self != Role::WriteOnly,
            Level::WriteOnly => self != Role::ReadOnly,
            Level::ReadWrite => matches!(self, Role::ReadWrite | Role::Admin),
            Level::Admin => self == Role::Admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_satisfies_its_levels_and_no_other() {
        use Level::{Admin, Public, ReadOnly, ReadWrite, WriteOnly};
        let lattice: [(Role, &[Level]); 4] = [
            (Role::ReadOnly, &[Public, ReadOnly]),
            (Role::WriteOnly, &[Public, WriteOnly]),
            (Role::ReadWrite, &[Public, ReadOnly, WriteOnly, ReadWrite]),
            (Role::Admin, &[Public, ReadOnly, WriteOnly, ReadWrite, Admin]),
        ];
        for (role, satisfied) in lattice {
            for level in [Public, ReadOnly, WriteOnly, ReadWrite, Admin] {
                assert_eq!(role.satisfies(level), satisfied.contains(&level), "{role:?} at {level:?}");
            }
        }
    }
}
