//! Log lines for the warnings of the engine.

use ironkeeper_engine::io::{QuotaResource, Warning};

pub fn log(warning: &Warning) {
    match warning {
        Warning::QuotaExceeded { path, resource, used, limit, is_hard } => {
            let resource = match resource {
                QuotaResource::Nodes => "nodes",
                QuotaResource::Bytes => "bytes",
            };
            tracing::warn!(path, resource, used, limit, rejected = is_hard, "quota exceeded");
        }
        Warning::DigestMismatch { zxid } => {
            tracing::warn!(%zxid, "tree differs from the leader's, later mismatches are counted");
        }
    }
}
