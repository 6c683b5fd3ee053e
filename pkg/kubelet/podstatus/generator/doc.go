// Package generator collects the input of a pod status from the managers, calls podstatus.Generate, and logs its notes.
package generator
