//! Arguments of the macros.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Expr, Ident, LitStr, Path, Token};

use crate::name;

/// The crate's path, a name and amounts. All are optional.
pub(crate) struct Arguments {
    /// Path of the crate; by default, its name in the manifest.
    pub(crate) krate: Path,
    pub(crate) name: Option<LitStr>,
    pub(crate) amounts: Amounts,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let krate = input.call(path_of_the_crate)?;
        let name = input.peek(LitStr).then(|| input.parse()).transpose()?;
        if name.is_some() {
            end_of_argument(input)?;
        }
        let mut amounts = Vec::new();
        while !input.is_empty() {
            let amount = input.parse()?;
            input.parse::<Token![=]>()?;
            amounts.push((amount, input.parse()?));
            end_of_argument(input)?;
        }
        Ok(Self { krate, name, amounts: Amounts(amounts) })
    }
}

/// The crate's path as the only argument.
pub(crate) struct Krate(pub(crate) Path);

impl Parse for Krate {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(path_of_the_crate).map(Self)
    }
}

/// Parses `crate = path` and the comma after it. Without this argument, the path is the crate's
/// name in the manifest.
fn path_of_the_crate(input: ParseStream<'_>) -> syn::Result<Path> {
    if !input.peek(Token![crate]) {
        return Ok(name::of_the_crate());
    }
    input.parse::<Token![crate]>()?;
    input.parse::<Token![=]>()?;
    let krate = input.parse()?;
    end_of_argument(input)?;
    Ok(krate)
}

/// Parses a comma, unless the input has ended.
fn end_of_argument(input: ParseStream<'_>) -> syn::Result<()> {
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok(())
}

/// The arguments of a lap, which must have a name.
pub(crate) struct Lap {
    pub(crate) krate: Path,
    pub(crate) name: LitStr,
    pub(crate) amounts: Amounts,
}

impl Parse for Lap {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let start = input.fork();
        let Arguments { krate, name, amounts } = input.parse()?;
        // Without a name, parsing the first argument as a name reports the error.
        let name = name.map_or_else(|| start.parse(), Ok)?;
        Ok(Self { krate, name, amounts })
    }
}

/// Amounts with their names.
pub(crate) struct Amounts(Vec<(Ident, Expr)>);

impl Amounts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A slice of the names.
    pub(crate) fn names(&self) -> TokenStream {
        let names = self.0.iter().map(|(name, _)| name.to_string());
        quote! { &[#(#names),*] }
    }

    /// An array of the values.
    pub(crate) fn values(&self, krate: &Path) -> TokenStream {
        let values = self.0.iter().map(|(_, value)| value);
        quote! { [#(#krate::Amount::amount(#values)),*] }
    }
}
