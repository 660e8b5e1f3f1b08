//! The attribute macros of `pfp-probe`; use them through that crate.

mod all;
mod arguments;
mod function;
mod name;

use proc_macro::TokenStream;
use proc_macro2::Span;
use quote::quote;
use syn::{Ident, LitStr, parse_macro_input};

use arguments::{Amounts, Arguments, Krate, Lap};

/// Measures every call of a function.
///
/// `#[pfp::function]` names the point as the function is named,
/// `#[pfp::function("name")]` as it says.
///
/// `#[pfp::function(bytes = data.len())]` and `#[pfp::function("name", items = n)]`
/// give each call amounts, worked out of its arguments as it begins; of an `async fn`,
/// as it is first polled.
///
/// # Futures
///
/// An `async fn` is measured over all its polls: the time between them is not counted.
/// So is a function that ends with an `async` block, by itself or in `Box::pin`, in each
/// branch of an `if` or `match` too, and so a method under `#[async_trait]`. What such a
/// function does before the block is not measured, nor is a future that it returns
/// earlier with `return`; its amounts are worked out as it is called.
///
/// ```
/// use std::pin::Pin;
///
/// #[pfp::function]
/// fn answer(question: String) -> Pin<Box<dyn Future<Output = usize>>> {
///     Box::pin(async move { question.len() })
/// }
/// # drop(answer(String::new()));
/// ```
///
/// A function that says that it returns a future and does not end like that is refused,
/// or only the making of the future would be measured:
///
/// ```compile_fail
/// #[pfp::function]
/// fn later() -> impl Future<Output = ()> {
///     std::future::ready(())
/// }
/// ```
///
/// Call `Point::measure_async` there, or end with `async move { ... .await }`. A future
/// that is returned under a name of its own (`-> Ready<()>`, `-> MyFuture`) cannot be told
/// from other values: there the making is measured.
///
/// # Another name for the crate
///
/// Where `Cargo.toml` gives the crate another name, as in
/// `prof = { package = "pfp-probe", ... }`, all macros find it there:
/// `#[prof::function]`, `prof::lap!("read")`. A crate that only reexports it says where it
/// is, first of all arguments: `#[mine::prof::function(crate = mine::prof)]`,
/// `mine::prof::lap!(crate = mine::prof, "read")`.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    measured(arguments, item)
}

/// Measures every call of every function in an `impl` block, each under its own name, as
/// [`macro@function`] does.
///
/// [`#[pfp::skip]`](macro@skip) leaves one out; one that has a `#[pfp::function(...)]` of its
/// own keeps it. A `const fn` is left out.
///
/// ```
/// struct Parser;
///
/// #[pfp::all_functions]
/// impl Parser {
///     fn parse(&self, text: &str) -> usize {
///         text.split(',').map(|field| self.field(field)).sum()
///     }
///
///     #[pfp::function("parse a field", bytes = text.len())]
///     fn field(&self, text: &str) -> usize {
///         text.len() + self.tiny()
///     }
///
///     #[pfp::skip]
///     fn tiny(&self) -> usize {
///         1
///     }
/// }
/// assert_eq!(Parser.parse("a,b"), 4);
/// ```
#[proc_macro_attribute]
pub fn all_functions(arguments: TokenStream, block: TokenStream) -> TokenStream {
    let Krate(krate) = parse_macro_input!(arguments);
    all::expand(&krate, parse_macro_input!(block)).into()
}

/// Leaves a function out of [`macro@all_functions`].
#[proc_macro_attribute]
pub fn skip(_arguments: TokenStream, function: TokenStream) -> TokenStream {
    function
}

/// The same as [`macro@function`].
#[proc_macro_attribute]
pub fn measure(arguments: TokenStream, item: TokenStream) -> TokenStream {
    measured(arguments, item)
}

fn measured(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let (item, arguments) = (parse_macro_input!(item), parse_macro_input!(arguments as Arguments));
    function::expand(arguments, item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Measures the rest of the block in laps: `pfp::laps!("first")` begins a region,
/// and each [`lap!`] after it ends the one before and begins the next. The end of
/// the block ends the last. `pfp::laps!()` begins none, which is what a loop
/// wants that goes from the last lap to the first. The crate's page has an example.
///
/// Either may have amounts, as `pfp::scope!` has them: `pfp::lap!("read", bytes = n)`.
#[proc_macro]
pub fn laps(first: TokenStream) -> TokenStream {
    let Arguments { krate, name, amounts } = parse_macro_input!(first);
    let guard = guard();
    let (begun, first) = match name {
        None if !amounts.is_empty() => {
            let problem = "amounts are a lap's, which has a name";
            return syn::Error::new(Span::call_site(), problem).to_compile_error().into();
        }
        Some(name) if amounts.is_empty() => {
            let point = point(&krate, &name);
            (quote! { #point.measure() }, None)
        }
        name => {
            let first = name.map(|name| lap_with(&krate, &name, &amounts));
            (quote! { #krate::Guard::empty() }, first)
        }
    };
    // Borrowed once, since nothing changes it if no lap follows.
    quote! { let mut #guard = #begun; let _ = &mut #guard; #first }.into()
}

/// Ends the region before and begins the next, with a single reading of the clock.
/// To be used in a block, or inside one, that has a [`laps!`]. Each place is a
/// point of its own.
#[proc_macro]
pub fn lap(next: TokenStream) -> TokenStream {
    let Lap { krate, name, amounts } = parse_macro_input!(next);
    if amounts.is_empty() {
        let (point, guard) = (point(&krate, &name), guard());
        return quote! { #guard.lap(#point) }.into();
    }
    lap_with(&krate, &name, &amounts).into()
}

/// A lap to a region with amounts.
fn lap_with(krate: &syn::Path, name: &LitStr, amounts: &Amounts) -> proc_macro2::TokenStream {
    let (guard, names, values) = (guard(), amounts.names(), amounts.values(krate));
    quote! {{
        static __PFP_POINT: #krate::MeteredPoint = #krate::MeteredPoint::new(#name, #names);
        #guard.lap_with(&__PFP_POINT, #values);
    }}
}

/// What [`laps!`] declares and [`lap!`] uses; what the compiler says if there is
/// none.
fn guard() -> Ident {
    Ident::new("pfp_lap_without_laps", Span::call_site())
}

/// A point of the place where a macro is called.
fn point(krate: &syn::Path, name: &LitStr) -> proc_macro2::TokenStream {
    quote! {{
        static __PFP_POINT: #krate::Point = #krate::Point::new(#name);
        &__PFP_POINT
    }}
}
