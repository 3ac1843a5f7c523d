//! The membership files beside `zoo.cfg`, as the log thread writes them.

use std::io;

use ironkeeper_config::dynamic_files::DynamicFiles;
use ironkeeper_node::MemberFiles;
use ironkeeper_proto::Membership;

/// The files of [`DynamicFiles`].
#[derive(Debug)]
pub(crate) struct DynamicMemberFiles(pub(crate) DynamicFiles);

impl MemberFiles for DynamicMemberFiles {
    fn write_proposed(&self, next: &Membership) -> io::Result<()> {
        self.0.write_proposed(next)
    }

    fn write_committed(&self, committed: &Membership) -> io::Result<()> {
        self.0.write_committed(committed)
    }

    fn withdraw_proposed(&self) -> io::Result<()> {
        self.0.withdraw_proposed()
    }
}
