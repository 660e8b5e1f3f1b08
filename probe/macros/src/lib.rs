//! The attribute macros of `pfp-probe`; use them through that crate.

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemFn, LitStr, parse_macro_input};

/// Measures every call of a function.
///
/// `#[pfp::function]` names the point as the function is named,
/// `#[pfp::function("name")]` as it says. An `async fn` is measured over all its
/// polls: the time between them is not counted.
#[proc_macro_attribute]
pub fn function(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item)
}

/// The same as [`macro@function`].
#[proc_macro_attribute]
pub fn measure(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item)
}

fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = parse_macro_input!(item as ItemFn);
    let name = if arguments.is_empty() {
        item.sig.ident.to_string().trim_start_matches("r#").to_owned()
    } else {
        parse_macro_input!(arguments as LitStr).value()
    };
    if let Some(constness) = item.sig.constness {
        let problem = "a const fn cannot be measured: it may run in the compiler";
        return syn::Error::new_spanned(constness, problem).to_compile_error().into();
    }
    let ItemFn { attrs, vis, sig, block, .. } = item;
    let body = if sig.asyncness.is_some() {
        // The block keeps the function's own meaning of `return` and `?`.
        quote! { __PFP_POINT.measure_async(async move #block).await }
    } else {
        quote! {
            let __pfp_guard = __PFP_POINT.measure();
            #block
        }
    };
    quote! {
        #(#attrs)*
        #vis #sig {
            static __PFP_POINT: ::pfp::Point = ::pfp::Point::new(#name);
            #body
        }
    }
    .into()
}
