//! The faults of a cluster, drawn from the seed.

use crate::random::Random;

/// The relative frequency of each fault, as weights.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The pause between two faults, in microseconds.
    pub pause_us: (u64, u64),
    pub kill: u64,
    pub power_loss: u64,
    /// All servers lose power at once.
    pub blackout: u64,
    pub restart: u64,
    pub cut_one_way: u64,
    pub isolate: u64,
    pub split: u64,
    pub heal: u64,
    pub reset: u64,
    pub freeze: u64,
    pub slow_disk: u64,
    pub slow_network: u64,
    /// The leader is cut off, killed or frozen.
    pub leader: u64,
    /// A disk is full for some time.
    pub full_disk: u64,
    /// One of the next calls to a disk fails, or the power fails during it.
    pub bad_call: u64,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Kill,
    PowerLoss,
    Blackout,
    Restart,
    CutOneWay,
    Isolate,
    Split,
    Heal,
    Reset,
    Freeze,
    SlowDisk,
    SlowNetwork,
    Leader,
    FullDisk,
    BadCall,
}

impl Faults {
    /// Draws a mixture: no faults, one kind of fault, or many.
    pub fn draw(random: &mut Random) -> Faults {
        let slow = random.chance(400);
        let pause_us = if slow { (300_000, 4_000_000) } else { (20_000, 800_000) };
        let mut weight = |per_mille: u64| {
            if random.chance(per_mille) { random.between(1, 10) } else { 0 }
        };
        Faults {
            pause_us,
            kill: weight(600),
            power_loss: weight(600),
            blackout: weight(300),
            restart: 8 + weight(500),
            cut_one_way: weight(500),
            isolate: weight(500),
            split: weight(400),
            heal: 4 + weight(500),
            reset: weight(500),
            freeze: weight(400),
            slow_disk: weight(300),
            slow_network: weight(300),
            leader: weight(600),
            full_disk: 0,
            bad_call: 0,
        }
    }

    /// Adds faults of the disks.
    pub fn with_bad_disks(self, random: &mut Random) -> Faults {
        let mut weight = |per_mille: u64| {
            if random.chance(per_mille) { random.between(1, 10) } else { 0 }
        };
        Faults { full_disk: weight(300), bad_call: weight(500), ..self }
    }

    /// Returns weights with which no fault occurs.
    pub fn none() -> Faults {
        Faults {
            pause_us: (u64::MAX / 4, u64::MAX / 4),
            kill: 0,
            power_loss: 0,
            blackout: 0,
            restart: 0,
            cut_one_way: 0,
            isolate: 0,
            split: 0,
            heal: 1,
            reset: 0,
            freeze: 0,
            slow_disk: 0,
            slow_network: 0,
            leader: 0,
            full_disk: 0,
            bad_call: 0,
        }
    }

    pub fn next(&self, random: &mut Random) -> Fault {
        let table = [
            (self.kill, Fault::Kill),
            (self.power_loss, Fault::PowerLoss),
            (self.blackout, Fault::Blackout),
            (self.restart, Fault::Restart),
            (self.cut_one_way, Fault::CutOneWay),
            (self.isolate, Fault::Isolate),
            (self.split, Fault::Split),
            (self.heal, Fault::Heal),
            (self.reset, Fault::Reset),
            (self.freeze, Fault::Freeze),
            (self.slow_disk, Fault::SlowDisk),
            (self.slow_network, Fault::SlowNetwork),
            (self.leader, Fault::Leader),
            (self.full_disk, Fault::FullDisk),
            (self.bad_call, Fault::BadCall),
        ];
        let mut draw = random.below(table.iter().map(|(weight, _)| weight).sum());
        for (weight, fault) in table {
            if draw < weight {
                return fault;
            }
            draw -= weight;
        }
        Fault::Heal
    }
}
