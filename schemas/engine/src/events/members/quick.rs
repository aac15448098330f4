//! The quick way over a record that is in order: what it accepts and finds is what serde_json would. Anything else (an error, a name
//! with escapes, a path that leads through no object, deep nesting) it leaves to serde_json, which has the words for it.

use super::{Node, Slot};

mod reader;

use reader::Reader;

/// Deeper values are left.
const MAX_DEPTH: usize = 32;

/// Sets the slots of one object's text. `None`: left, with slots half set.
pub(super) fn find<'a>(root: &Node, text: &'a str, slots: &mut [Slot<'a>]) -> Option<()> {
    let mut reader = Reader::new(text);
    reader.space();
    reader.take(b'{')?;
    reader.object(Some(root), slots, MAX_DEPTH)?;
    reader.space();
    (reader.at == text.len()).then_some(())
}

impl<'a> Reader<'a> {
    /// Behind its brace; `node`: what is looked for in it.
    fn object(&mut self, node: Option<&Node>, slots: &mut [Slot<'a>], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        // An earlier member of the same name may have left something.
        set_missing(node, slots);
        let mut expected = 0;
        self.space();
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let child = self.name(node, &mut expected)?;
            self.space();
            self.take(b':')?;
            self.space();
            self.member(child, slots, depth)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The node of a member's name, which mostly is the one behind the one before.
    fn name<'n>(&mut self, node: Option<&'n Node>, expected: &mut usize) -> Option<Option<&'n Node>> {
        if let Some(child) = node.and_then(|node| node.children.get(*expected))
            && self.bytes[self.at..].starts_with(&child.quoted)
        {
            self.at += child.quoted.len();
            *expected += 1;
            return Some(Some(&child.node));
        }
        self.take(b'"')?;
        let begin = self.at;
        let escapes = self.string()?;
        let name = self.text.get(begin..self.at - 1)?;
        (!escapes).then(|| node.and_then(|node| node.child(name, expected)))
    }

    fn member(&mut self, child: Option<&Node>, slots: &mut [Slot<'a>], depth: usize) -> Option<()> {
        let begin = self.at;
        let Some(child) = child else { return self.value(None, slots, depth).map(drop) };
        let inside = (!child.children.is_empty()).then_some(child);
        let is_plain = self.value(inside, slots, depth)?;
        let json = self.text.get(begin..self.at)?;
        for column in &child.columns {
            slots[*column] = if is_plain { Slot::Plain(json) } else { Slot::Found(json) };
        }
        Some(())
    }

    /// Any value; with `inside` an object in which more is looked for. Whether it is a text without escapes.
    fn value(&mut self, inside: Option<&Node>, slots: &mut [Slot<'a>], depth: usize) -> Option<bool> {
        match self.next()? {
            b'{' => self.object(inside, slots, depth)?,
            b'n' => {
                self.rest(b"ull")?;
                set_missing(inside, slots);
            }
            _ if inside.is_some() => return None,
            b'"' => return self.string().map(|escapes| !escapes),
            b'[' => self.array(slots, depth)?,
            b't' => self.rest(b"rue")?,
            b'f' => self.rest(b"alse")?,
            b'-' => {
                let first = self.next()?;
                self.number(first)?;
            }
            first => self.number(first)?,
        }
        Some(false)
    }

    fn array(&mut self, slots: &mut [Slot<'a>], depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.space();
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            self.value(None, slots, depth)?;
            self.space();
            match self.next()? {
                b',' => self.space(),
                b']' => return Some(()),
                _ => return None,
            }
        }
    }
}

fn set_missing(node: Option<&Node>, slots: &mut [Slot<'_>]) {
    for column in node.iter().flat_map(|node| &node.below) {
        slots[*column] = Slot::Missing;
    }
}

#[cfg(test)]
mod tests;
