//! The program under test.
