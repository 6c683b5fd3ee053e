// Package pressureconfig reads the NodePressureConfiguration and hands what it says to the eviction manager: at start,
// and again each time the file changes.
//
//	decode   strict: every unknown, duplicate or mistyped field is named with its path and line
//	load     one file → configuration, defaulted and validated
//	reload   what a change of the file leads to
//	watch    when to look at the file
//	metrics  which configuration holds, and whether the last load failed
package pressureconfig
