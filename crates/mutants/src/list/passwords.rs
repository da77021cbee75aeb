//! Passwords of `password_command`. The order of a refusal and the next password is rare in the
//! simulator: scripted tests notice these mutants.

use super::{Mutant, change};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "RepeatsRefusedLogins",
        wrong: "A program is run without end if all its passwords are wrong",
        seen_in: "Weir",
        noticed_by: "issued::refused_passwords_fail_the_login",
        changes: &[change(
            "login/issued.rs",
            "self.number.filter(|_| «self.wanted.refused.is_none()»)",
            "self.number > self.wanted.refused",
        )],
    },
    Mutant {
        name: "TrustsLaterPasswords",
        wrong: "Servers are replaced although the later password is wrong",
        seen_in: "Weir",
        noticed_by: "issued::servers_stay_until_a_later_password_is_right",
        changes: &[change(
            "admission/pool/passwords.rs",
            "number <= self.ended && «number < self.accepted»",
            "number < Some(u64::MAX)",
        )],
    },
    Mutant {
        name: "TriesWithoutEnd",
        wrong: "Wrong passwords are tried again, though no client needs a server",
        seen_in: "Weir",
        noticed_by: "issued::a_wrong_password_is_tried_once_and_the_servers_stay",
        changes: &[change(
            "admission/pool/passwords.rs",
            "«self.tried_after < self.ended» && self.accepted <= self.ended",
            "self.ended.is_some()",
        )],
    },
];
