// Package report keeps what trials measured: as JSON for machines, and as one HTML page with drawings in it that needs nothing else, no
// network and no script. The central type is [Document]. Documents are kept by date and CPU model and name no host; those of the
// same model show the course of the figures from one to the next. All functions are plain ones and start no goroutines.
package report
