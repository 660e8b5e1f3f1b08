//! The parts of `src/layout/geometry.rs` that the protocol files use, with small sizes.

/// Two cells, so that a model can fill a block.
pub(crate) const CELLS_PER_BLOCK: usize = 2;
/// Large enough that a block has a head before its cells.
pub(crate) const BLOCK: usize =
    CELLS_PER_BLOCK * size_of::<crate::cell::Cell>() + 16 * size_of::<crate::sync::AtomicU64>();

/// Replaces the real geometry; its words are the payload of the header's model.
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

/// Fewer copies than in a segment, so that a model overwrites them.
pub(crate) const ALLOC_COPIES: usize = 2;
