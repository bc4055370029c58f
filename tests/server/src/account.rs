//! The account that servers run as: PostgreSQL refuses to run as root.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The account that servers run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// The one of this process.
    Own,
    Other {
        user: u32,
        group: u32,
    },
}

impl Account {
    /// The account of this process, or for root `postgres` or `nobody`.
    pub(crate) fn of_servers() -> Result<Self, String> {
        let reading = |error: std::io::Error| format!("reading the accounts of this machine: {error}");
        if std::fs::metadata("/proc/self").map_err(reading)?.uid() != 0 {
            return Ok(Self::Own);
        }
        let accounts = std::fs::read_to_string("/etc/passwd").map_err(reading)?;
        let found = account_in(&accounts, "postgres").or_else(|| account_in(&accounts, "nobody"));
        found.ok_or_else(|| "no user 'postgres' or 'nobody' to run a PostgreSQL server as".to_owned())
    }

    /// The command runs as this account.
    pub(crate) fn applied_to(self, command: &mut Command) {
        if let Self::Other { user, group } = self {
            command.uid(user).gid(group);
        }
    }

    /// Gives the folder to this account. Fails if the account cannot enter it.
    pub(crate) fn owns(self, folder: &Path) -> Result<(), String> {
        let Self::Other { user, group } = self else { return Ok(()) };
        chown(folder, Some(user), Some(group)).map_err(|error| error.to_string())?;
        let mut enter = Command::new("test");
        self.applied_to(enter.arg("-w").arg(folder));
        // Started elsewhere: the account may not be able to enter the current folder.
        let entered = enter.current_dir("/").status().map_err(|error| error.to_string())?;
        if entered.success() { Ok(()) } else { Err(format!("user {user} cannot enter it")) }
    }
}

fn account_in(accounts: &str, name: &str) -> Option<Account> {
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some(Account::Other { user: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_user_and_a_group() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:a,b:/var/lib:/bin/sh\n";
        assert_eq!(account_in(accounts, "postgres"), Some(Account::Other { user: 101, group: 104 }));
        assert_eq!(account_in(accounts, "nobody"), None);
    }
}
