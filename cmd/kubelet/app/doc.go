// Package app turns a command line into a running agent: flags and files become validated settings, settings become the
// parts of the world that the agent talks to, and the agent runs until a signal ends it.
//
// Precedence, as stock's: built-in defaults, then the --config file, then the files in --config-dir in the order of
// their paths, then flags. Wrong values are found before anything is started; the message names the field, the flag
// where there is one, and the value. Nothing in this package ends the process: Program.Run returns an exit code.
package app
