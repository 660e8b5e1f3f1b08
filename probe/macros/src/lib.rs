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
/// `#[pfp::function]` names the point after the function, and `#[pfp::function("name")]` gives it
/// another name.
///
/// `#[pfp::function(bytes = data.len())]` and `#[pfp::function("name", items = n)]` give each call
/// amounts. The amounts are evaluated when the call begins, or when the future of an `async fn` is
/// first polled, and can use the arguments.
///
/// # Futures
///
/// An `async fn` is measured over all its polls; the time between them does not count. This also
/// works for a function that ends with an `async` block, alone or in `Box::pin`, possibly in each
/// branch of an `if` or `match`, and so for methods under `#[async_trait]`. In these functions,
/// code before the block and futures that an earlier `return` returns are not measured. Amounts are
/// evaluated when the function is called.
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
/// If a function's type is a future, but the function does not end like that, compilation fails,
/// because only the creation of the future would be measured:
///
/// ```compile_fail
/// #[pfp::function]
/// fn later() -> impl Future<Output = ()> {
///     std::future::ready(())
/// }
/// ```
///
/// In these cases, call `Point::measure_async`, or end with `async move { ... .await }`. A future
/// with a named type (`-> Ready<()>`, `-> MyFuture`) looks like any other value to the macro, so
/// only its creation is measured.
///
/// # Another name for the crate
///
/// If `Cargo.toml` renames the crate, as in `prof = { package = "pfp-probe", ... }`, all macros use
/// that name: `#[prof::function]`, `prof::lap!("read")`. If the crate is only re-exported, its path
/// must be the first argument: `#[mine::prof::function(crate = mine::prof)]`,
/// `mine::prof::lap!(crate = mine::prof, "read")`.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    measured(arguments, item)
}

/// Measures every call of every function in an `impl` block, each under its own name, like
/// [`macro@function`].
///
/// [`#[pfp::skip]`](macro@skip) excludes a function. A function with its own
/// `#[pfp::function(...)]` keeps that. A `const fn` is not measured.
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

/// Excludes a function from [`macro@all_functions`].
#[proc_macro_attribute]
pub fn skip(_arguments: TokenStream, function: TokenStream) -> TokenStream {
    function
}

/// Another name of [`macro@function`].
#[proc_macro_attribute]
pub fn measure(arguments: TokenStream, item: TokenStream) -> TokenStream {
    measured(arguments, item)
}

fn measured(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let (item, arguments) = (parse_macro_input!(item), parse_macro_input!(arguments as Arguments));
    function::expand(arguments, item).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Measures the rest of the block in laps: `pfp::laps!("first")` begins a region, and each
/// following [`lap!`] ends the current region and begins the next. The end of the block ends the
/// last one. `pfp::laps!()` begins no region, which suits a loop in which the first lap follows the
/// last lap of the previous round. The first page of `pfp-probe` has an example.
///
/// Both macros accept amounts, like `pfp::scope!`: `pfp::lap!("read", bytes = n)`.
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
    // Borrows the guard once, so that without a following lap, the compiler does not report an
    // unneeded `mut`.
    quote! { let mut #guard = #begun; let _ = &mut #guard; #first }.into()
}

/// Ends the current region and begins the next, with a single reading of the clock. The innermost
/// enclosing [`laps!`] must be in the same block or in one around it. Each call in the source is a
/// separate point.
#[proc_macro]
pub fn lap(next: TokenStream) -> TokenStream {
    let Lap { krate, name, amounts } = parse_macro_input!(next);
    if amounts.is_empty() {
        let (point, guard) = (point(&krate, &name), guard());
        return quote! { #guard.lap(#point) }.into();
    }
    lap_with(&krate, &name, &amounts).into()
}

/// Begins a lap with amounts.
fn lap_with(krate: &syn::Path, name: &LitStr, amounts: &Amounts) -> proc_macro2::TokenStream {
    let (guard, names, values) = (guard(), amounts.names(), amounts.values(krate));
    quote! {{
        static __PFP_POINT: #krate::MeteredPoint = #krate::MeteredPoint::new(#name, #names);
        #guard.lap_with(&__PFP_POINT, #values);
    }}
}

/// The variable that [`laps!`] declares and [`lap!`] uses. Without a `laps!`, the compiler reports
/// that this variable is missing, so its name states the mistake.
fn guard() -> Ident {
    Ident::new("pfp_lap_without_laps", Span::call_site())
}

/// A static point for the place where a macro is called.
fn point(krate: &syn::Path, name: &LitStr) -> proc_macro2::TokenStream {
    quote! {{
        static __PFP_POINT: #krate::Point = #krate::Point::new(#name);
        &__PFP_POINT
    }}
}
