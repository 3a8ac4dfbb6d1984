//! Tests over real files, over random layouts, and over damaged tables.

mod compare;
mod damage;
mod every_row;
mod maps;
mod oracle;
