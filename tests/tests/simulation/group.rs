//! The consumer group: assigns partitions, with orderly revocations, losses, and members that do not respond.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::Rng;
use rand::rngs::StdRng;
use types::vector::PartitionId;

/// A notice from the group to a member, delivered in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Assigned(Vec<PartitionId>),
    /// To be committed and then released by [`Group::release`].
    Revoked(Vec<PartitionId>),
    /// Another member already has them.
    Lost(Vec<PartitionId>),
}

pub struct Group {
    partitions: Vec<PartitionId>,
    members: BTreeMap<String, Member>,
}

#[derive(Default)]
struct Member {
    owned: BTreeSet<PartitionId>,
    notices: VecDeque<Notice>,
    /// Partitions being revoked, with the member that waits for them.
    revoking: BTreeMap<PartitionId, String>,
}

impl Group {
    pub fn new(partitions: Vec<PartitionId>) -> Self {
        Self { partitions, members: BTreeMap::new() }
    }

    pub fn join(&mut self, member: &str) {
        // A member that rejoins frees what it had.
        self.leave(member);
        self.members.insert(member.to_owned(), Member::default());
    }

    pub fn leave(&mut self, member: &str) {
        self.members.remove(member);
    }

    /// Dead members lose their membership.
    pub fn expire(&mut self, is_alive: impl Fn(&str) -> bool) {
        self.members.retain(|member, _| is_alive(member));
    }

    pub fn next_notice(&mut self, member: &str) -> Option<Notice> {
        self.members.get_mut(member)?.notices.pop_front()
    }

    /// The member has committed and releases the partitions: those who wait for them get them.
    pub fn release(&mut self, member: &str, partitions: &[PartitionId]) {
        for partition in partitions {
            let waiting = self.members.get_mut(member).and_then(|known| {
                known.owned.remove(partition);
                known.revoking.remove(partition)
            });
            if let Some(waiting) = waiting {
                self.assign(&waiting, partition);
            }
        }
    }

    /// Assigns free partitions, and moves one between members: `politely`, or as from one that no longer responds.
    /// Returns what was moved, and whether its owner keeps others.
    pub fn rebalance(&mut self, rng: &mut StdRng, politely: bool) -> Option<(PartitionId, String, bool)> {
        self.give_free(rng);
        let names: Vec<String> = self.members.keys().cloned().collect();
        if names.len() < 2 {
            return None;
        }
        let from = names[rng.random_range(0..names.len())].clone();
        let to = names[rng.random_range(0..names.len())].clone();
        let member = self.members.get_mut(&from)?;
        let owned: Vec<PartitionId> = member.owned.iter().filter(|p| !member.revoking.contains_key(p)).cloned().collect();
        if from == to || owned.is_empty() {
            return None;
        }
        let partition = owned[rng.random_range(0..owned.len())].clone();
        let keeps_others = owned.len() > 1;
        if politely {
            member.revoking.insert(partition.clone(), to);
            member.notices.push_back(Notice::Revoked(vec![partition.clone()]));
        } else {
            member.owned.remove(&partition);
            member.notices.push_back(Notice::Lost(vec![partition.clone()]));
            self.assign(&to, &partition);
        }
        Some((partition, from, keeps_others))
    }

    /// A member that waits too long gets its partitions: their owner has lost them.
    pub fn lose_patience(&mut self) {
        let slow: Vec<(String, PartitionId, String)> = self
            .members
            .iter()
            .flat_map(|(name, member)| member.revoking.iter().map(move |(p, to)| (name.clone(), p.clone(), to.clone())))
            .collect();
        for (name, partition, to) in slow {
            if let Some(member) = self.members.get_mut(&name) {
                member.owned.remove(&partition);
                member.revoking.remove(&partition);
                member.notices.push_back(Notice::Lost(vec![partition.clone()]));
            }
            self.assign(&to, &partition);
        }
    }

    /// Assigns partitions without an owner.
    pub fn give_free(&mut self, rng: &mut StdRng) {
        let names: Vec<String> = self.members.keys().cloned().collect();
        let free: Vec<PartitionId> =
            self.partitions.iter().filter(|p| !self.members.values().any(|member| member.owned.contains(p))).cloned().collect();
        if names.is_empty() {
            return;
        }
        for partition in free {
            let to = names[rng.random_range(0..names.len())].clone();
            self.assign(&to, &partition);
        }
    }

    fn assign(&mut self, to: &str, partition: &PartitionId) {
        if let Some(member) = self.members.get_mut(to) {
            member.owned.insert(partition.clone());
            member.notices.push_back(Notice::Assigned(vec![partition.clone()]));
        }
    }
}
