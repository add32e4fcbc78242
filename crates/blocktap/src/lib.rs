//! Watches the requests to a block device that is not hearth's, from outside: it reads what the kernel
//! tells about them and touches neither the device nor its users.
