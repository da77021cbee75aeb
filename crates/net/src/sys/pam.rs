//! Linux-PAM by its six functions (manual page `pam(3)`). The library is not linked, but opened on
//! first use, so the same binary runs without it.
//!
//! A call may take as long as the service's modules want: never on a worker.

#![expect(unsafe_code, reason = "calls into a C library, each with its own reasoning")]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fmt, mem, ptr,
    sync::OnceLock,
    time::Duration,
};

/// Every Linux distribution has used this name for twenty years.
const LIBRARY: &CStr = c"libpam.so.0";

const SUCCESS: c_int = 0;
const OPEN_ERR: c_int = 1;
const SYMBOL_ERR: c_int = 2;
const SYSTEM_ERR: c_int = 4;
const BUF_ERR: c_int = 5;
const AUTHINFO_UNAVAIL: c_int = 9;
const CONVERSATION_FAILED: c_int = 19;
const ABORT: c_int = 26;
const MODULE_UNKNOWN: c_int = 28;

/// The codes after which no module has checked the password: no such service, a module that cannot
/// be loaded, a directory that cannot be reached. SYSTEM_ERR and SERVICE_ERR are not among them:
/// `pam_exec` returns SYSTEM_ERR when its program refuses a user.
const OUTAGES: [c_int; 6] =
    [OPEN_ERR, SYMBOL_ERR, BUF_ERR, AUTHINFO_UNAVAIL, ABORT, MODULE_UNKNOWN];

const SILENT: c_int = 0x8000;
const ITEM_RHOST: c_int = 4;
const ITEM_FAIL_DELAY: c_int = 10;
const PROMPT_ECHO_OFF: c_int = 1;
const ERROR_MSG: c_int = 3;

/// PAM's answer about a password.
#[derive(Debug)]
pub struct Answer {
    pub verdict: Result<(), Refusal>,
    /// The time that the modules want a refused client to wait.
    pub delay: Duration,
    /// Messages of the modules about what went wrong.
    pub said: Vec<String>,
}

/// Why a user is refused, in PgBouncer's words.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The function that has refused; empty if PAM is not installed.
    function: &'static str,
    code: c_int,
    reason: String,
}

impl Refusal {
    fn not_available(reason: String) -> Self {
        Self { function: "", code: OPEN_ERR, reason }
    }

    /// Returns true if no module could check the password.
    pub fn is_outage(&self) -> bool {
        OUTAGES.contains(&self.code)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function, reason, .. } = self;
        if function.is_empty() {
            return write!(f, "PAM authentication is not available: {reason}");
        }
        write!(f, "{function}() failed: {reason}")
    }
}

/// A question to PAM: the user, the password and the service.
#[derive(Debug)]
pub struct Question<'a> {
    pub service: &'a str,
    /// The folder of the service's file, if it is not the system's.
    pub folder: Option<&'a str>,
    pub user: &'a str,
    pub password: &'a str,
    /// The client's address, without a port.
    pub host: &'a str,
}

/// Is this the user's password for the service, and may the user log in now from this host?
pub fn ask(question: &Question<'_>) -> Answer {
    let mut conversation =
        Conversation { password: CString::default(), delay: Duration::ZERO, said: vec![] };
    let verdict = match library() {
        Ok(library) => library.ask(question, &mut conversation),
        Err(reason) => Err(Refusal::not_available(reason.clone())),
    };
    Answer { verdict, delay: conversation.delay, said: conversation.said }
}

/// `pam_handle_t`.
type Handle = *mut c_void;

/// `struct pam_conv`.
#[repr(C)]
struct Conv {
    talk:
        unsafe extern "C" fn(c_int, *mut *const Message, *mut *mut Response, *mut c_void) -> c_int,
    conversation: *mut c_void,
}

/// `struct pam_message`.
#[repr(C)]
struct Message {
    style: c_int,
    text: *const c_char,
}

/// `struct pam_response`.
#[repr(C)]
struct Response {
    text: *mut c_char,
    code: c_int,
}

type Start = unsafe extern "C" fn(*const c_char, *const c_char, *const Conv, *mut Handle) -> c_int;
type StartIn = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    *const Conv,
    *const c_char,
    *mut Handle,
) -> c_int;
type SetItem = unsafe extern "C" fn(Handle, c_int, *const c_void) -> c_int;
/// Takes flags, or the code of the function called last.
type Act = unsafe extern "C" fn(Handle, c_int) -> c_int;
type StrError = unsafe extern "C" fn(Handle, c_int) -> *const c_char;

/// The functions of the library.
struct Library {
    start: Start,
    /// Since Linux-PAM 1.4.
    start_in: Option<StartIn>,
    set_item: SetItem,
    authenticate: Act,
    acct_mgmt: Act,
    end: Act,
    strerror: StrError,
}

/// The answers to the modules' questions, and their messages.
struct Conversation {
    password: CString,
    delay: Duration,
    said: Vec<String>,
}

/// Opened once.
fn library() -> Result<&'static Library, &'static String> {
    static OPENED: OnceLock<Result<Library, String>> = OnceLock::new();
    OPENED.get_or_init(Library::open).as_ref()
}

impl Library {
    fn open() -> Result<Self, String> {
        // SAFETY: the name is a C string; the library's constructors are trusted as those of any
        // library we are linked with.
        let opened = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if opened.is_null() {
            return Err(last_error());
        }
        // SAFETY: each is the function of that name, whose declaration in <security/pam_appl.h> is
        // that of the type.
        unsafe {
            Ok(Self {
                start: mem::transmute::<*mut c_void, Start>(function(c"pam_start")?),
                start_in: function(c"pam_start_confdir")
                    .ok()
                    .map(|found| mem::transmute::<*mut c_void, StartIn>(found)),
                set_item: mem::transmute::<*mut c_void, SetItem>(function(c"pam_set_item")?),
                authenticate: mem::transmute::<*mut c_void, Act>(function(c"pam_authenticate")?),
                acct_mgmt: mem::transmute::<*mut c_void, Act>(function(c"pam_acct_mgmt")?),
                end: mem::transmute::<*mut c_void, Act>(function(c"pam_end")?),
                strerror: mem::transmute::<*mut c_void, StrError>(function(c"pam_strerror")?),
            })
        }
    }

    fn ask(&self, question: &Question<'_>, conversation: &mut Conversation) -> Result<(), Refusal> {
        let Question { service, folder, user, password, host } = *question;
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| self.refusal("pam_start", ptr::null_mut(), SYSTEM_ERR))
        };
        let (service, user, host) = (c_string(service)?, c_string(user)?, c_string(host)?);
        conversation.password = c_string(password)?;
        let conv = Conv { talk, conversation: ptr::from_mut(conversation).cast() };
        let mut handle = ptr::null_mut();
        let (function, code) = match (folder.map(c_string).transpose()?, self.start_in) {
            (Some(_), None) => {
                let reason = "it has no pam_start_confdir, which auth_pam_confdir needs".to_owned();
                return Err(Refusal::not_available(reason));
            }
            // SAFETY: the strings are alive, PAM copies them and `conv`; what `conv` points to
            // outlives the handle, which is ended below.
            (Some(folder), Some(start)) => ("pam_start_confdir", unsafe {
                let (service, user) = (service.as_ptr(), user.as_ptr());
                start(service, user, &raw const conv, folder.as_ptr(), &raw mut handle)
            }),
            // SAFETY: the same.
            (None, _) => ("pam_start", unsafe {
                (self.start)(service.as_ptr(), user.as_ptr(), &raw const conv, &raw mut handle)
            }),
        };
        if code != SUCCESS {
            return Err(self.refusal(function, handle, code));
        }
        let (verdict, code) = self.decide(handle, &host);
        // SAFETY: the handle was started, and is not used any more.
        unsafe { (self.end)(handle, code) };
        verdict
    }

    /// The verdict, and the code of the function called last.
    fn decide(&self, handle: Handle, host: &CStr) -> (Result<(), Refusal>, c_int) {
        let refused = |function, code| (Err(self.refusal(function, handle, code)), code);
        // SAFETY: the handle is started and not ended; PAM copies the string.
        let code = unsafe { (self.set_item)(handle, ITEM_RHOST, host.as_ptr().cast()) };
        if code != SUCCESS {
            return refused("pam_set_item", code);
        }
        // SAFETY: the same; the function is of the type that PAM calls it by.
        let code = unsafe { (self.set_item)(handle, ITEM_FAIL_DELAY, note_delay as *const c_void) };
        if code != SUCCESS {
            return refused("pam_set_item", code);
        }
        for (function, act) in
            [("pam_authenticate", self.authenticate), ("pam_acct_mgmt", self.acct_mgmt)]
        {
            // SAFETY: the handle is started and not ended.
            let code = unsafe { act(handle, SILENT) };
            if code != SUCCESS {
                return refused(function, code);
            }
        }
        (Ok(()), SUCCESS)
    }

    fn refusal(&self, function: &'static str, handle: Handle, code: c_int) -> Refusal {
        // SAFETY: Linux-PAM does not look at the handle; the text is static.
        let reason = unsafe { (self.strerror)(handle, code) };
        let reason = if reason.is_null() {
            code.to_string()
        } else {
            // SAFETY: it is a C string.
            unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
        };
        Refusal { function, code, reason }
    }
}

/// Finds a function as the linker would: libraries that were loaded earlier come first.
fn function(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() { Err(last_error()) } else { Ok(found) }
}

fn last_error() -> String {
    // SAFETY: the text is this thread's until its next call of the kind.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: it is a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Answers the modules' questions (manual page `pam_conv(3)`). The answer to a hidden prompt is the
/// password, because no user is there to ask.
///
/// # Safety
/// `messages` has `count` of them, and `conversation` is a [`Conversation`].
unsafe extern "C" fn talk(
    count: c_int,
    messages: *mut *const Message,
    responses: *mut *mut Response,
    conversation: *mut c_void,
) -> c_int {
    let Ok(len) = usize::try_from(count) else { return CONVERSATION_FAILED };
    if len == 0 || messages.is_null() || responses.is_null() || conversation.is_null() {
        return CONVERSATION_FAILED;
    }
    // SAFETY: the module frees what it gets, so it is C's; zeros are responses without text.
    let answers = unsafe { libc::calloc(len, size_of::<Response>()) }.cast::<Response>();
    if answers.is_null() {
        return CONVERSATION_FAILED;
    }
    // SAFETY: it is what we gave to pam_start, and nobody else uses it meanwhile.
    let conversation = unsafe { &mut *conversation.cast::<Conversation>() };
    for at in 0..len {
        // SAFETY: by the contract of this function there are `count` messages, and as many answers.
        let (message, answer) = unsafe { (&**messages.add(at), &mut *answers.add(at)) };
        match message.style {
            PROMPT_ECHO_OFF => {
                // SAFETY: the password is a C string.
                answer.text = unsafe { libc::strdup(conversation.password.as_ptr()) };
            }
            ERROR_MSG if !message.text.is_null() => {
                // SAFETY: so is the text.
                let text = unsafe { CStr::from_ptr(message.text) };
                conversation.said.push(text.to_string_lossy().into_owned());
            }
            _ => {}
        }
    }
    // SAFETY: it is not null, and is for this.
    unsafe { *responses = answers };
    SUCCESS
}

/// Records the delay after a refusal, instead of PAM's sleep on this thread (manual page
/// `pam_fail_delay(3)`).
///
/// # Safety
/// `conversation` is a [`Conversation`].
unsafe extern "C" fn note_delay(code: c_int, delay_us: c_uint, conversation: *mut c_void) {
    if code == SUCCESS || conversation.is_null() {
        return;
    }
    // SAFETY: it is what we gave to pam_start, and nobody else uses it meanwhile.
    let conversation = unsafe { &mut *conversation.cast::<Conversation>() };
    conversation.delay = Duration::from_micros(delay_us.into());
}
