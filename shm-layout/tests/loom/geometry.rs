//! What the protocol files use of `src/layout/geometry.rs`, small.

/// Two, so that a model fills a block.
pub(crate) const CELLS_PER_BLOCK: usize = 2;
/// So much that there is a head before them.
pub(crate) const BLOCK: usize =
    CELLS_PER_BLOCK * size_of::<crate::cell::Cell>() + 16 * size_of::<crate::sync::AtomicU64>();

/// Stands for the real one; its words are the payload of the header's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry(pub(crate) [u64; 6]);

impl Geometry {
    pub(crate) fn to_words(self) -> [u64; 6] {
        self.0
    }

    pub(crate) fn from_words(
        words: [u64; 6],
        _: usize,
        _: Option<u64>,
    ) -> Result<Self, &'static str> {
        Ok(Self(words))
    }
}
