//! The attribute of an `impl` block, whose functions are measured.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, ImplItem, ItemImpl, Path, parse_quote};

/// Adds `#[pfp::function]` to each function of the block, except functions that cannot be measured,
/// are skipped, or already have that attribute.
pub(crate) fn expand(krate: &Path, mut block: ItemImpl) -> TokenStream {
    for item in &mut block.items {
        let ImplItem::Fn(function) = item else { continue };
        let before = function.attrs.len();
        function.attrs.retain(|attribute| !is_ours(attribute, krate, &["skip"]));
        let is_skipped = function.attrs.len() < before;
        let has_its_own =
            function.attrs.iter().any(|found| is_ours(found, krate, &["function", "measure"]));
        // A `const fn` cannot be measured, because the compiler may evaluate it.
        if !is_skipped && !has_its_own && function.sig.constness.is_none() {
            function.attrs.push(parse_quote! { #[#krate::function(crate = #krate)] });
        }
    }
    block.to_token_stream()
}

/// Whether an attribute has one of these names, alone or after the crate's name. `#[rustfmt::skip]`
/// does not count.
fn is_ours(attribute: &Attribute, krate: &Path, names: &[&str]) -> bool {
    let mut path = attribute.path().segments.iter().rev();
    let Some(last) = path.next() else { return false };
    names.iter().any(|name| last.ident == name)
        && path.next().is_none_or(|before| {
            krate.segments.last().is_some_and(|krate| krate.ident == before.ident)
        })
}
