//! `mntr`: all metrics, one line each, as `zk_<key>`, a tab and the value.
//!
//! Every key that Apache ZooKeeper 3.9.5 prints is printed, so that no dashboard misses one. A
//! value is either measured or, for things that do not exist here, a zero of [`NOT_MEASURED`]. Two
//! groups are omitted. Apache's sizes of reads and writes for each node below the root
//! (`..._read_per_namespace`, `..._write_per_namespace`) appear only with traffic, and counting
//! them would cost every read a lookup in a table that all threads share. A leader's queues to each
//! learner (`<id>_learner_handler_qp_...`) do not exist here.

use std::fmt::{Display, Write};

use ironkeeper_metrics::{Kind, Percentiles, Reading, Sample, Totals};

use super::java;
use super::not_measured::NOT_MEASURED;
use crate::Monitor;

/// Renders `mntr`.
pub fn mntr(monitor: &Monitor) -> String {
    let Monitor { version, mode, samples } = monitor;
    let mut lines = Lines::default();
    lines.put("version", version);
    lines.put("server_state", mode.name());
    if let Some(peer_state) = mode.peer_state() {
        lines.put("peer_state", peer_state);
    }
    samples.iter().for_each(|sample| lines.sample(sample));
    lines.not_measured();
    lines.text
}

#[derive(Debug, Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn put(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.text, "zk_{key}\t{value}");
    }

    fn sample(&mut self, sample: &Sample) {
        let name = sample.descriptor.name;
        match &sample.label {
            Some(label) => self.reading(&format!("{label}_{name}"), &sample.reading),
            None => self.reading(name, &sample.reading),
        }
    }

    fn reading(&mut self, key: &str, reading: &Reading) {
        match reading {
            Reading::Count(value) => self.put(key, value),
            Reading::Integer(value) => self.put(key, value),
            Reading::Real(value) => self.put(key, java::double(*value)),
            Reading::Summary(totals) => self.summary(key, *totals),
            Reading::Distribution(values) => {
                self.summary(key, values.totals);
                for (name, part) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)] {
                    self.put(&format!("{name}_{key}"), values.quantile(part));
                }
            }
        }
    }

    fn summary(&mut self, key: &str, totals: Totals) {
        self.put(&format!("avg_{key}"), java::average(totals.average()));
        self.put(&format!("min_{key}"), totals.least());
        self.put(&format!("max_{key}"), totals.most);
        self.put(&format!("cnt_{key}"), totals.count);
        self.put(&format!("sum_{key}"), totals.sum);
    }

    fn not_measured(&mut self) {
        for (_, kind, names) in NOT_MEASURED {
            let zero = match kind {
                Kind::Counter | Kind::Gauge => Reading::Count(0),
                Kind::Summary => Reading::Summary(Totals::default()),
                Kind::Distribution => Reading::Distribution(Percentiles::default()),
            };
            names.iter().for_each(|name| self.reading(name, &zero));
        }
    }
}

#[cfg(test)]
mod tests {
    use ironkeeper_metrics::{Descriptor, Distribution, Summary, Unit};

    use super::*;
    use crate::Mode;

    #[track_caller]
    fn check(name: &'static str, reading: Reading, text: &str) {
        let descriptor = Descriptor { name, kind: Kind::Gauge, unit: Unit::Count, help: "" };
        let mut lines = Lines::default();
        lines.sample(&Sample { descriptor, label: None, reading });
        assert_eq!(lines.text, text);
    }

    #[test]
    fn summaries_print_as_five_lines() {
        let times = Summary::default();
        [2, 0, 0].iter().for_each(|ms| times.add(*ms));
        check(
            "fsynctime",
            Reading::Summary(times.totals()),
            "zk_avg_fsynctime\t0.6667\n\
             zk_min_fsynctime\t0\n\
             zk_max_fsynctime\t2\n\
             zk_cnt_fsynctime\t3\n\
             zk_sum_fsynctime\t2\n",
        );
        check(
            "fsynctime",
            Reading::Summary(Totals::default()),
            "zk_avg_fsynctime\t0.0\n\
             zk_min_fsynctime\t0\n\
             zk_max_fsynctime\t0\n\
             zk_cnt_fsynctime\t0\n\
             zk_sum_fsynctime\t0\n",
        );
    }

    #[test]
    fn distributions_add_percentiles() {
        let times = Distribution::default();
        [3, 27, 64].iter().for_each(|ms| times.add(*ms));
        check(
            "updatelatency",
            Reading::Distribution(times.percentiles()),
            "zk_avg_updatelatency\t31.3333\n\
             zk_min_updatelatency\t3\n\
             zk_max_updatelatency\t64\n\
             zk_cnt_updatelatency\t3\n\
             zk_sum_updatelatency\t94\n\
             zk_p50_updatelatency\t27\n\
             zk_p95_updatelatency\t64\n\
             zk_p99_updatelatency\t64\n\
             zk_p999_updatelatency\t64\n",
        );
    }

    #[test]
    fn the_role_comes_first_and_labels_precede_names() {
        let descriptor =
            Descriptor { name: "errors", kind: Kind::Counter, unit: Unit::Count, help: "" };
        let text = mntr(&Monitor {
            version: "3.9.5-x, built on y".to_owned(),
            mode: Mode::Leader,
            samples: vec![Sample {
                descriptor,
                label: Some("app".to_owned()),
                reading: Reading::Integer(-1),
            }],
        });
        let head = "zk_version\t3.9.5-x, built on y\nzk_server_state\tleader\n\
                    zk_peer_state\tleading - broadcast\nzk_app_errors\t-1\n";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn what_does_not_exist_is_zero_in_its_shape() {
        let mut lines = Lines::default();
        lines.not_measured();
        for line in lines.text.lines() {
            let (key, value) = line.split_once('\t').expect("a tab");
            assert_eq!(value, if key.starts_with("zk_avg_") { "0.0" } else { "0" }, "{key}");
        }
    }
}
