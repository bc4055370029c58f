//! The file system of a folder: figures from a RAM disk say nothing about durable commits.

use std::path::Path;

/// The kernel's name for the type of the file system; `None` if it cannot be read.
pub(crate) fn kind_of(folder: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let folder = folder.canonicalize().ok()?;
    mounts
        .lines()
        .filter_map(mount)
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind.to_owned())
}

/// Mount point and type of a line of `mountinfo`: the fifth field, and the first after the lone dash.
fn mount(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    Some((before.split(' ').nth(4)?, after.split(' ').next()?))
}

/// Whether the file system is in memory.
pub(crate) fn is_volatile(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_gives_its_point_and_type() {
        let line = "98 70 0:43 / /dev/shm rw,nosuid shared:5 - tmpfs tmpfs rw,size=10k";
        assert_eq!(mount(line), Some(("/dev/shm", "tmpfs")));
        assert_eq!(mount("nonsense"), None);
    }
}
