//! Apache's shell (`zkCli.sh` without the shell script): every command, compared with a recording.
//!
//! The session of [`shell_session`] is compared, command by command, with `session.expected.txt`.

use anyhow::Result;
use ironkeeper_steps::repo;

use super::{Lab, Tally, shell_session, transcript};

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let apache = lab.cache.apache()?;
    let server = lab.server(|setup| setup)?;
    let address = server.address();
    let steps =
        shell_session::play(|| apache.shell(&address), &address, |_, events| events, &lab.dir)?;
    transcript::compare(&repo::interop("zkcli/session.expected.txt"), &steps, lab.bless)
}
