// Command nmeter prints the time of day in UTC with milliseconds, once. It
// stands in for the applet of that name, which not every busybox has.
package main

import (
	"fmt"
	"time"
)

func main() { fmt.Println(time.Now().UTC().Format("15:04:05.000")) }
