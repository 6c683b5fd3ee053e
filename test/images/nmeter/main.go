// Command nmeter prints the time of day in UTC with milliseconds, once. It replaces the applet of that name, which some
// busyboxes lack.
package main

import (
	"fmt"
	"time"
)

func main() { fmt.Println(time.Now().UTC().Format("15:04:05.000")) }
