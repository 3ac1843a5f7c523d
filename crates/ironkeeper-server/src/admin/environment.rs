//! The environment of the process.
//!
//! Monitors may need every key that Apache prints, so all are there. The value of keys about Java
//! is `<NA>`, which Apache prints for a property that does not exist.

use ironkeeper_admin::Environment;

use super::process;

const NOT_AVAILABLE: &str = "<NA>";

/// Returns the environment of the process, in Apache's order.
pub(crate) fn environment() -> Environment {
    let or_na = |value: Option<String>| value.unwrap_or_else(|| NOT_AVAILABLE.to_owned());
    let na = || NOT_AVAILABLE.to_owned();
    let (user, home) = process::user();
    let current_dir = std::env::current_dir().ok().map(|dir| dir.display().to_string());
    // In Java these are parts of the heap. Java computes used memory as total minus free; here all
    // memory of the process counts as used.
    let occupied = process::resident_bytes();
    vec![
        ("zookeeper.version", ironkeeper_admin::version()),
        ("host.name", or_na(process::host_name())),
        ("java.version", na()),
        ("java.vendor", na()),
        ("java.home", na()),
        ("java.class.path", na()),
        ("java.library.path", na()),
        ("java.io.tmpdir", std::env::temp_dir().display().to_string()),
        ("java.compiler", na()),
        ("os.name", os_name(std::env::consts::OS).to_owned()),
        ("os.arch", os_arch(std::env::consts::ARCH).to_owned()),
        ("os.version", or_na(process::kernel_release())),
        ("user.name", or_na(user)),
        ("user.home", or_na(home)),
        ("user.dir", or_na(current_dir)),
        ("os.memory.free", megabytes(occupied.map(|_| 0))),
        ("os.memory.max", megabytes(process::machine_bytes())),
        ("os.memory.total", megabytes(occupied)),
    ]
}

fn megabytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| NOT_AVAILABLE.to_owned(), |bytes| format!("{}MB", bytes >> 20))
}

/// Returns Java's name for an operating system.
fn os_name(name: &str) -> &str {
    match name {
        "linux" => "Linux",
        "macos" => "Mac OS X",
        "freebsd" => "FreeBSD",
        other => other,
    }
}

fn os_arch(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "x86" => "i386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_apache_is_there_in_its_order() {
        let keys: Vec<_> = environment().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys.join(" "),
            "zookeeper.version host.name java.version java.vendor java.home java.class.path \
             java.library.path java.io.tmpdir java.compiler os.name os.arch os.version user.name \
             user.home user.dir os.memory.free os.memory.max os.memory.total"
        );
    }

    #[test]
    fn unknown_sizes_are_not_available() {
        assert_eq!(megabytes(None), "<NA>");
        assert_eq!(megabytes(Some(500 << 20)), "500MB");
    }
}
